"""A pool of processes for KZG and for many signatures, started at their first call (BLB-001, NTC-002).

`ckzg` and Ed25519 hold the interpreter's lock: in a thread they would hold the event loop up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final, TypeVar

from holdfast.adapters.keys.signing import verify_all
from holdfast.adapters.kzg.trusted_setup import commit_blob, prepare_process, verify_blobs
from holdfast.core.base.errors import Unavailable
from holdfast.ports.blobs import KzgWork
from holdfast.ports.sync import SignedBytes
from holdfast.system.child_process import CallFailed, CallTimedOut, ChildEnded, ChildProcess

START_S: Final = 60.0
CALL_S: Final = 120.0
T = TypeVar("T")


class KzgPool:
    """A fixed number of processes, each with one call at a time; one that dies is replaced."""

    def __init__(self, processes: int = 0) -> None:
        self.processes = processes or max(1, (os.cpu_count() or 1) - 1)
        self._free: SimpleQueue[ChildProcess | None] = SimpleQueue()
        for _ in range(self.processes):
            self._free.put(None)
        self._children: set[ChildProcess] = set()
        self._threads = ThreadPoolExecutor(self.processes, "kzg")
        self._is_closed = False

    async def commit(self, blob: bytes) -> KzgWork:
        return await self._run(commit_blob, blob)

    async def verify(self, blobs: Sequence[tuple[bytes, KzgWork]]) -> list[bool]:
        return await self._run(verify_blobs, list(blobs)) if blobs else []

    async def verify_signatures(self, signed: Sequence[SignedBytes]) -> list[bool]:
        return await self._run(verify_all, list(signed)) if signed else []

    async def close(self) -> None:
        """End all processes; calls that are running fail."""
        self._is_closed = True
        for child in list(self._children):
            child.kill()
        await asyncio.to_thread(self._threads.shutdown)
        for child in list(self._children):
            child.close()

    async def _run(self, function: Callable[..., T], argument: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, function, argument)

    def _call(self, function: Callable[..., T], argument: object) -> T:
        child = self._free.get()
        try:
            child = child if child is not None and child.is_alive else self._start(child)
            return child.call(function, argument, timeout_s=CALL_S)
        except (ChildEnded, CallTimedOut, CallFailed, OSError) as fault:
            if child is not None:
                self._end(child)
                child = None
            raise Unavailable(
                "BLB-001", f"a process for KZG and signatures failed: {fault}", "it is started again"
            ) from fault
        finally:
            self._free.put(child)

    def _start(self, dead: ChildProcess | None) -> ChildProcess:
        if dead is not None:
            self._end(dead)
        if self._is_closed:
            raise OSError("the node is stopping")
        child = ChildProcess("spawn", prepare_process)
        self._children.add(child)
        child.start(START_S)
        return child

    def _end(self, child: ChildProcess) -> None:
        self._children.discard(child)
        child.close()
