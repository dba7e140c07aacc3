"""Where verifiers that compute run (PRF-002): processes with limits of time and memory, killed beyond them.

A sandbox is one process that answers one call at a time. One that dies, hangs or takes too much is replaced, and its
caller gets the reason. No call waits for ever.
"""

from __future__ import annotations

import asyncio
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Final

import msgspec

from holdfast.ports.verifier import ProofMethod, VerificationInput, VerificationResult
from holdfast.system.child_process import CallFailed, CallTimedOut, ChildEnded, ChildProcess

MIB: Final = 1 << 20


class SandboxLimits(msgspec.Struct, frozen=True):
    """What one call may cost."""

    seconds_max: float
    memory_mib_max: int
    start_s_max: float = 30.0
    """How long a new process may take to start."""


class SandboxFailed(Exception):
    """The verifier itself failed: it says nothing about the proof."""


class SandboxPool:
    """A fixed number of processes, started at their first call and reused."""

    def __init__(self, count: int, limits: SandboxLimits) -> None:
        self._limits = limits
        self._free: SimpleQueue[_Sandbox] = SimpleQueue()
        self._all = [_Sandbox(limits) for _ in range(count)]
        for sandbox in self._all:
            self._free.put(sandbox)
        self._threads = ThreadPoolExecutor(count, "verifying")

    async def run(self, method: ProofMethod, case: VerificationInput) -> VerificationResult:
        """What the method finds; SandboxFailed where it does not answer, crashes, or takes too much."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, method, case)

    def _run(self, method: ProofMethod, case: VerificationInput) -> VerificationResult:
        sandbox = self._free.get()
        try:
            return sandbox.run(method, case)
        finally:
            self._free.put(sandbox)

    async def close(self) -> None:
        """End all processes; calls that are running fail."""
        for sandbox in self._all:
            sandbox.stop()
        await asyncio.to_thread(self._threads.shutdown)
        for sandbox in self._all:
            sandbox.close()


class _Sandbox:
    """One child process, replaced after a failure."""

    def __init__(self, limits: SandboxLimits) -> None:
        self._limits = limits
        self._child: ChildProcess | None = None
        self._is_closed = False

    def run(self, method: ProofMethod, case: VerificationInput) -> VerificationResult:
        child = self._ensure_started()
        try:
            result: object = child.call(method.verify, case, timeout_s=self._limits.seconds_max)
        except CallTimedOut as fault:
            raise self._failed(f"it took longer than {self._limits.seconds_max:g} s") from fault
        except ChildEnded as fault:
            raise self._failed(str(fault)) from fault
        except CallFailed as fault:
            raise self._failed(_describe_failure(fault)) from fault
        if not isinstance(result, VerificationResult):
            raise self._failed(f"it answered with a {type(result).__name__}")
        return result

    def _ensure_started(self) -> ChildProcess:
        if self._is_closed:
            raise SandboxFailed("the node is stopping")
        if self._child is not None and self._child.is_alive:
            return self._child
        self.close()
        child = self._child = ChildProcess("spawn", partial(_limit_process, self._limits.memory_mib_max))
        try:
            if not self._is_closed:
                child.start(self._limits.start_s_max)
        except OSError as fault:
            raise self._failed(f"its process did not start: {fault.strerror}") from fault
        except (CallTimedOut, ChildEnded) as fault:
            raise self._failed("its process did not start") from fault
        if self._is_closed:
            raise self._failed("the node is stopping")
        return child

    def _failed(self, reason: str) -> SandboxFailed:
        """The process goes, too: what else the verifier changed in it is unknown."""
        self.close()
        return SandboxFailed(reason)

    def close(self) -> None:
        """End the process; the next call starts another one."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def stop(self) -> None:
        """From any thread: a call that is running fails."""
        self._is_closed = True
        child = self._child
        if child is not None:
            child.kill()


def _describe_failure(fault: CallFailed) -> str:
    if fault.kind == MemoryError.__name__:
        return "it took more memory than it may"
    return f"it raised {fault.kind}: {fault.message}"[:300]


def _limit_process(memory_mib_max: int) -> None:
    """In the child, before its first call."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib_max * MIB, memory_mib_max * MIB))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)  # the node's own loop comes first
