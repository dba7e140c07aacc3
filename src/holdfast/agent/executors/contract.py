"""What an executor is: a plug-in that turns a job's payload into output bytes."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from holdfast.core.job.spec import WorkPayload


class ExecutorIsolation(StrEnum):
    """What an executor runs in."""

    INLINE = "inline"
    """For work of microseconds that never waits: in the agent's event loop, without a hand-over to a thread."""
    THREAD = "thread"
    """For work that waits or is short. A thread cannot be killed: the executor must look at `cancel`."""
    PROCESS = "process"
    """For work that computes or may crash. It is killed when its time is over. The executor is pickled to get there."""


class CancelSignal(Protocol):
    """Set when the result is not needed any more."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Sleep that long, or until it is set; whether it is."""
        ...


class Executor(Protocol):
    """Produces a job's output. What it raises is the reason why the lease failed."""

    @property
    def isolation(self) -> ExecutorIsolation: ...
    def run(self, payload: WorkPayload, cancel: CancelSignal) -> bytes: ...
