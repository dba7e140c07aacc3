"""Running an executor in the event loop, a thread or a child process, within its time limit, until it is cancelled."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.agent.executors.contract import (
    AsyncExecutor,
    Executor,
    ExecutorIsolation,
    TypedOutput,
    Work,
    WorkDeclined,
    WorkFailed,
)
from holdfast.agent.executors.thread_pool import THREADS
from holdfast.core.job.spec import WorkPayload
from holdfast.system.child_process import CallFailed, ChildEnded, ChildProcess, exit_with_parent
from holdfast.workloads.invalid_input import InvalidJobInput

REASON_MAX: Final = 500


class Failed(msgspec.Struct, frozen=True):
    """There is no output, and why."""

    reason: str


class Declined(msgspec.Struct, frozen=True):
    """The executor does not want this work now."""

    reason: str


class _ExecutionError(Exception):
    """The execution failed; its message is the reason."""


async def execute_async(executor: AsyncExecutor, work: Work, timeout_ms: int) -> TypedOutput | Failed | Declined:
    """The same for an executor that needs no thread."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            output = await executor.run_async(work)
    except TimeoutError:
        return Failed(f"TIME_OUT: not done after {timeout_ms} ms")
    except WorkDeclined as fault:
        return Declined(f"DECLINED: {fault}"[:REASON_MAX])
    except WorkFailed as fault:
        return Failed(str(fault)[:REASON_MAX])
    except Exception as fault:
        return Failed(_reason_of(fault)[:REASON_MAX])
    typed = output if isinstance(output, TypedOutput) else TypedOutput(output)
    checked = _check_output(typed.raw)
    return checked if isinstance(checked, Failed) else typed


async def execute(executor: Executor, payload: WorkPayload, timeout_ms: int) -> bytes | Failed:
    """The output, or why there is none. A caller that is cancelled cancels the work."""
    if executor.isolation is ExecutorIsolation.INLINE:
        return execute_inline(executor, payload)
    run = _RUNS[executor.isolation](executor, payload)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            output = await run.outcome.future
    except TimeoutError:
        return Failed(f"TIME_OUT: not done after {timeout_ms} ms")
    except _ExecutionError as fault:
        return Failed(str(fault)[:REASON_MAX])
    finally:
        run.stop()
    return _check_output(output)


def execute_inline(executor: Executor, payload: WorkPayload) -> bytes | Failed:
    """The same at once, for an executor that never waits."""
    try:
        return _check_output(executor.run(payload, _NeverCancelled()))
    except Exception as fault:
        return Failed(_reason_of(fault)[:REASON_MAX])


def _reason_of(fault: BaseException) -> str:
    return _reason(InvalidJobInput.__name__ if isinstance(fault, InvalidJobInput) else type(fault).__name__, str(fault))


def _reason(kind: str, message: str) -> str:
    """JOB-012: an invalid input is the job's fault, everything else the provider's."""
    return f"INVALID_INPUT: {message}" if kind == InvalidJobInput.__name__ else f"EXECUTOR_ERROR: {kind}: {message}"


def _check_output(output: object) -> bytes | Failed:
    if isinstance(output, bytes):
        return output
    return Failed(f"EXECUTOR_ERROR: it returned {type(output).__name__}, not bytes")


class _ThreadOutcome:
    """A future of this event loop that another thread completes, unless the loop is closed by then."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[object] = self._loop.create_future()

    def succeed(self, output: object) -> None:
        self._complete(self.future.set_result, output)

    def fail(self, reason: str) -> None:
        self._complete(self.future.set_exception, _ExecutionError(reason))

    def fail_with(self, fault: BaseException) -> None:
        self.fail(_reason_of(fault))

    def _complete(self, set_outcome: Callable[..., None], value: object) -> None:
        try:
            self._loop.call_soon_threadsafe(self._complete_now, set_outcome, value)
        except RuntimeError:  # the loop is closed
            return

    def _complete_now(self, set_outcome: Callable[..., None], value: object) -> None:
        if not self.future.done():
            set_outcome(value)


class _ThreadRun:
    """A thread that does nothing else meanwhile: an executor that ignores `cancel` blocks no other."""

    def __init__(self, executor: Executor, payload: WorkPayload) -> None:
        self.outcome = _ThreadOutcome()
        self._executor, self._payload = executor, payload
        self._cancel = threading.Event()
        THREADS.run(self._work)

    def stop(self) -> None:
        self._cancel.set()

    def _work(self) -> None:
        try:
            self.outcome.succeed(self._executor.run(self._payload, self._cancel))
        except BaseException as fault:
            self.outcome.fail_with(fault)


class _ProcessRun:
    """A child process; a thread waits for its answer or its end."""

    def __init__(self, executor: Executor, payload: WorkPayload) -> None:
        self.outcome = _ThreadOutcome()
        self._executor, self._payload = executor, payload
        # Ctrl-C is for the agent, which lets work finish. Programs that the executor starts still end by SIGTERM.
        self._child = ChildProcess("forkserver", exit_with_parent, ignored=(signal.SIGINT,))
        THREADS.run(self._work)

    def stop(self) -> None:
        self._child.kill()

    def _work(self) -> None:
        try:
            self.outcome.succeed(self._child.run(_run_executor, self._executor, self._payload))
        except CallFailed as fault:
            self.outcome.fail(_reason(fault.kind, fault.message))
        except ChildEnded as fault:
            self.outcome.fail(f"EXECUTOR_CRASHED: exit code {fault.exit_code}")
        except BaseException as fault:
            self.outcome.fail_with(fault)


_RUNS: Final[dict[ExecutorIsolation, Callable[[Executor, WorkPayload], _ThreadRun | _ProcessRun]]] = {
    ExecutorIsolation.THREAD: _ThreadRun,
    ExecutorIsolation.PROCESS: _ProcessRun,
}


class _NeverCancelled:
    """For a child process, which is killed instead, and for work that is done at once."""

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        threading.Event().wait(timeout)
        return False


# ------------------------------------------------------------------------------------------------ in the child process


def _run_executor(executor: Executor, payload: WorkPayload) -> bytes:
    try:
        return executor.run(payload, _NeverCancelled())
    except InvalidJobInput as fault:  # only the name of its type reaches the parent
        raise InvalidJobInput(str(fault)) from None
