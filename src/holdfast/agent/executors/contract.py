"""What an executor is: a plug-in that turns a job's payload into output bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from holdfast.core.job.spec import WorkPayload
from holdfast.core.proof.envelope import MEDIA_TYPE


class ExecutorIsolation(StrEnum):
    """What an executor runs in."""

    INLINE = "inline"
    """For work of microseconds that never waits: in the agent's event loop, without a hand-over to a thread.

    Its output is a function of the payload: after a crash it is computed again and must be the same (RCV-002).
    """
    THREAD = "thread"
    """For work that waits or is short. A thread cannot be killed: the executor must look at `cancel`."""
    PROCESS = "process"
    """For work that computes or may crash. It is killed when its time is over. The executor is pickled to get there."""
    ASYNC = "async"
    """For programs and servers that the agent waits for: `run_async` in its event loop, cancelled at its deadline."""


class CancelSignal(Protocol):
    """Set when the result is not needed any more."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Sleep that long, or until it is set; whether it is."""
        ...


class Executor(Protocol):
    """Produces a job's output. What it raises is the reason why the lease failed; `InvalidJobInput` where the job is
    the fault."""

    @property
    def isolation(self) -> ExecutorIsolation: ...
    def run(self, payload: WorkPayload, cancel: CancelSignal) -> bytes: ...


class WorkDeclined(Exception):
    """The executor cannot do this now; the lease goes back to the queue, and no one is blamed."""


class WorkFailed(Exception):
    """There is no output; the message begins with the code of the reason."""


Report = Callable[[int | None, str], None]
"""Percent, if they are known, and a message: what the caller sees of running work (EVD-005)."""


class Work(msgspec.Struct, frozen=True):
    """One piece of work of an asynchronous executor."""

    payload: WorkPayload
    task_id: bytes
    deadline_ms: int
    """By the machine's clock."""
    report: Report


class TypedOutput(msgspec.Struct, frozen=True):
    """An output whose media type is known only when it is there."""

    raw: bytes
    media_type: str = ""


class AsyncExecutor(Protocol):
    """Produces an output without a thread. It must end within seconds when it is cancelled."""

    @property
    def isolation(self) -> ExecutorIsolation: ...
    async def run_async(self, work: Work) -> bytes | TypedOutput: ...


AnyExecutor = Executor | AsyncExecutor
TEXT, CBOR = "text/plain; charset=utf-8", "application/cbor"


def media_type_of(executor: AnyExecutor, payload: WorkPayload) -> str:
    """RES-009: of this payload's output, if the executor has a method `media_type` that declares a valid one."""
    declare = getattr(executor, "media_type", None)
    declared = declare(payload) if callable(declare) else ""
    return valid_media_type(declared)


def valid_media_type(declared: object) -> str:
    return declared if isinstance(declared, str) and re.search(MEDIA_TYPE, declared) else ""
