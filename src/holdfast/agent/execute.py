"""Running an executor in a thread or a process of its own, within its time, until nobody wants it any more."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Final

import msgspec

from holdfast.agent.executors import Executor, Where
from holdfast.core.job.spec import Ordered

REASON_MAX: Final = 240
_GOOD, _BAD = b"+", b"-"


class Failed(msgspec.Struct, frozen=True):
    """There is no output, and why."""

    reason: str


class _Failure(Exception):
    pass


async def execute(executor: Executor, payload: Ordered, timeout_ms: int) -> bytes | Failed:
    """The output, or why there is none. Who is cancelled while it waits cancels the work."""
    run = _RUNS[executor.where](executor, payload)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            output = await run.result
    except TimeoutError:
        return Failed(f"TIME_OUT: not done after {timeout_ms} ms")
    except _Failure as fault:
        return Failed(str(fault)[:REASON_MAX])
    finally:
        run.stop()
    if isinstance(output, bytes):
        return output
    return Failed(f"EXECUTOR_ERROR: it returned {type(output).__name__}, not bytes")


class _InThread:
    """A thread of its own, not of a pool: one that does not look at `cancel` takes nobody's place."""

    def __init__(self, executor: Executor, payload: Ordered) -> None:
        self.result, give, fail = _promise()
        cancel = self._cancel = threading.Event()

        def work() -> None:
            try:
                give(executor.run(payload, cancel))
            except BaseException as fault:
                fail(_said(fault))

        threading.Thread(target=work, name="executor", daemon=True).start()

    def stop(self) -> None:
        self._cancel.set()


class _InProcess:
    """A process of its own; a thread waits for what it sends or for its end."""

    def __init__(self, executor: Executor, payload: Ordered) -> None:
        self.result, give, fail = _promise()
        # Not forked from this process, whose threads hold locks; and started faster than a new interpreter.
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe(duplex=False)
        process = self._process = context.Process(target=_inside, args=(theirs, executor, payload), daemon=True)
        self._lock, self._is_stopped = threading.Lock(), False

        def work() -> None:
            try:
                if not self._start(theirs):
                    return
                told = ours.recv_bytes()
                give(told[1:]) if told[:1] == _GOOD else fail(told[1:].decode("utf-8", "replace"))
            except EOFError:
                process.join()
                fail(f"EXECUTOR_CRASHED: exit code {process.exitcode}")
            except BaseException as fault:
                fail(_said(fault))
            finally:
                ours.close()
                with self._lock:
                    self._is_stopped = True
                if process.pid is not None:
                    process.join()
                    process.close()

        threading.Thread(target=work, name="executor", daemon=True).start()

    def _start(self, theirs: Connection) -> bool:
        """False where it was stopped before it began."""
        with self._lock:
            if not self._is_stopped:
                self._process.start()
            theirs.close()
            return not self._is_stopped

    def stop(self) -> None:
        with self._lock:
            if not self._is_stopped and self._process.pid is not None:
                self._process.kill()
            self._is_stopped = True


_RUNS: Final[dict[Where, Callable[[Executor, Ordered], _InThread | _InProcess]]] = {
    Where.THREAD: _InThread,
    Where.PROCESS: _InProcess,
}


def _promise() -> tuple[asyncio.Future[object], Callable[[object], None], Callable[[str], None]]:
    """A future of this loop that another thread fulfils or fails; nobody may be there any more to see it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()

    def settle(value: object) -> None:
        def now() -> None:
            if not future.done():
                future.set_exception(value) if isinstance(value, _Failure) else future.set_result(value)

        try:
            loop.call_soon_threadsafe(now)
        except RuntimeError:  # the loop was closed
            return

    return future, settle, lambda reason: settle(_Failure(reason))


def _said(fault: BaseException) -> str:
    return f"EXECUTOR_ERROR: {type(fault).__name__}: {fault}"


# ------------------------------------------------------------------------------------------------ inside the process


class _Never:
    """Nobody cancels in here: the process is killed."""

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        threading.Event().wait(timeout)
        return False


def _inside(out: Connection, executor: Executor, payload: Ordered) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which lets work finish
    threading.Thread(target=_end_with_the_agent, daemon=True).start()
    try:
        told = _GOOD + executor.run(payload, _Never())
    except Exception as fault:
        told = _BAD + _said(fault).encode()
    out.send_bytes(told)


def _end_with_the_agent() -> None:
    """An agent that was killed leaves no work behind that nobody asked for."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
