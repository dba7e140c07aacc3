"""Where verifiers that compute run (PRF-002): processes with limits of time and memory, killed beyond them.

A cell is one process that answers one question at a time. One that dies, hangs or takes too much is replaced; whoever
asked is told what happened by its own name, and nobody waits for ever.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Final

import msgspec

from holdfast.core.proof.finding import Case, Finding, Method

_SPAWN: Final = get_context("spawn")  # a fork would copy the node's locks, threads and secrets
MIB: Final = 1 << 20
END_S: Final = 10.0
"""How long a process that has cut its line may take to be gone: only then it is known how it ended."""


class Limits(msgspec.Struct, frozen=True):
    """What one question may cost."""

    seconds_max: float
    memory_mib_max: int
    start_s_max: float = 30.0
    """How long a new process may take until it is there."""


class Broken(Exception):
    """The verifier itself failed: it says nothing about the proof."""


class Cells:
    """So many processes, made when they are needed first, each used again and again."""

    def __init__(self, count: int, limits: Limits) -> None:
        self._limits = limits
        self._free: SimpleQueue[_Cell] = SimpleQueue()
        self._all = [_Cell(limits) for _ in range(count)]
        for cell in self._all:
            self._free.put(cell)
        self._threads = ThreadPoolExecutor(count, "verifying")

    async def find(self, method: Method, case: Case) -> Finding:
        """What the method finds; Broken where it does not answer, crashes, or takes too much."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._find, method, case)

    def _find(self, method: Method, case: Case) -> Finding:
        cell = self._free.get()
        try:
            return cell.ask(method, case)
        finally:
            self._free.put(cell)

    async def close(self) -> None:
        """End all of them; who still waits is told."""
        for cell in self._all:
            cell.end()
        await asyncio.to_thread(self._threads.shutdown)


class _Cell:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: SpawnProcess | None = None
        self._line: Connection | None = None
        self._is_closed = False

    def ask(self, method: Method, case: Case) -> Finding:
        line = self._started()
        try:
            line.send((method.find, case))
            if not line.poll(self._limits.seconds_max):
                raise Broken(f"it took longer than {self._limits.seconds_max:g} s")
            said = line.recv()
        except (EOFError, OSError) as fault:
            raise Broken(self._how_it_ended()) from fault
        except Broken:
            self.kill()
            raise
        if isinstance(said, Finding):
            return said
        self.kill()  # what else it left behind in there nobody knows
        raise Broken(str(said))

    def _started(self) -> Connection:
        if self._is_closed:
            raise Broken("the node is stopping")
        if self._line is not None and self._process is not None and self._process.is_alive():
            return self._line
        self.kill()
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(theirs, self._limits.memory_mib_max), daemon=True)
        try:
            process.start()
        except OSError as fault:
            ours.close()
            raise Broken(f"its process did not start: {fault.strerror}") from fault
        finally:
            theirs.close()
        self._process, self._line = process, ours  # one that never ran cannot be killed
        if self._is_closed or not self._is_ready(ours):
            self.kill()
            raise Broken("its process did not start")
        return ours

    def _is_ready(self, line: Connection) -> bool:
        try:
            return line.poll(self._limits.start_s_max) and line.recv() == "ready"
        except (EOFError, OSError):
            return False

    def _how_it_ended(self) -> str:
        process = self._process
        if process is None:
            return "its process is gone"
        process.join(END_S)
        code = process.exitcode
        self.kill()
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with {code}"

    def kill(self) -> None:
        process, line, self._process, self._line = self._process, self._line, None, None
        if process is not None:
            process.kill()
            process.join()
        if line is not None:
            line.close()

    def end(self) -> None:
        """From any thread: whoever asks this cell just now finds its line cut."""
        self._is_closed = True
        process = self._process
        if process is not None:
            process.kill()


# ------------------------------------------------------------------------------------------------ in the process


def _serve(line: Connection, memory_mib_max: int) -> None:
    """Answer questions until the line is cut. Signals for the node's group are the node's matter."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib_max * MIB, memory_mib_max * MIB))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)  # the node's own loop comes first
    line.send("ready")
    while True:
        try:
            find, case = line.recv()
        except (EOFError, OSError):
            return
        line.send(_answer(find, case))


def _answer(find: object, case: Case) -> Finding | str:
    try:
        found = find(case)  # type: ignore[operator]
    except MemoryError:
        return "it took more memory than it may"
    except Exception as fault:
        return f"it raised {type(fault).__name__}: {fault}"[:300]
    return found if isinstance(found, Finding) else f"it answered with a {type(found).__name__}"
