"""Commands and events of schedules."""

from __future__ import annotations

from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import AccountId, Digest, KeyId, TaskId, Tier
from holdfast.core.schedule.model import ScheduleId


class CreateSchedule(Command, frozen=True):
    """Enqueue this payload again and again. It was checked as a job's is (`queue.decide.build_enqueue`)."""

    caller: AccountId
    name: str
    tier: Tier
    payload: bytes
    """Canonical bytes."""
    max_fee: int
    cron: str = ""
    interval_ms: int = 0
    """One of both."""
    offset_min: int = 0
    runs: int | None = None
    """How many jobs it enqueues before it ends; None: no limit."""
    until_ms: int | None = None
    """It does not fire later; None: no limit."""
    key: KeyId = KeyId("")
    input_digest: Digest = Digest(b"")


class PauseSchedule(Command, frozen=True):
    """Fire no more until it is resumed; `by` is the requester, None an operator."""

    id: ScheduleId
    by: AccountId | None = None
    reason: str = ""


class ResumeSchedule(Command, frozen=True):
    """Fire again, from the next time on; `by` is the requester, None an operator."""

    id: ScheduleId
    by: AccountId | None = None


class RemoveSchedule(Command, frozen=True):
    """Forget a schedule; its jobs go on. `by` is the requester, None an operator."""

    id: ScheduleId
    by: AccountId | None = None


class FireSchedule(Command, frozen=True):
    """Enqueue the job of a schedule that is due; the same time again changes nothing."""

    id: ScheduleId
    due_ms: int


class ScheduleCreated(Event, frozen=True, tag=170):
    """A schedule is active."""

    id: ScheduleId
    caller: AccountId
    name: str
    tier: Tier
    key: KeyId
    payload: bytes
    input_digest: Digest
    max_fee: int
    cron: str
    interval_ms: int
    offset_min: int
    created_ms: int
    next_ms: int
    runs_left: int | None = None
    until_ms: int | None = None


class ScheduleFired(Event, frozen=True, tag=171):
    """A schedule fired: the next event admits its job (JOB-014)."""

    id: ScheduleId
    caller: AccountId
    due_ms: int
    at_ms: int
    missed: int
    """Times that were due before and had no owner; they are not made up for."""
    task_id: TaskId
    next_ms: int


class ScheduleRefused(Event, frozen=True, tag=172):
    """A schedule fired and its job was refused; it goes on."""

    id: ScheduleId
    caller: AccountId
    due_ms: int
    at_ms: int
    missed: int
    rule: str
    refusal: str
    message: str
    next_ms: int


class SchedulePaused(Event, frozen=True, tag=173):
    """A schedule does not fire."""

    id: ScheduleId
    caller: AccountId
    reason: str
    at_ms: int


class ScheduleResumed(Event, frozen=True, tag=174):
    """A schedule fires again."""

    id: ScheduleId
    caller: AccountId
    next_ms: int
    at_ms: int


class ScheduleEnded(Event, frozen=True, tag=175):
    """A schedule had all its runs, or its end is past."""

    id: ScheduleId
    caller: AccountId
    reason: str
    at_ms: int


class ScheduleRemoved(Event, frozen=True, tag=176):
    """A schedule is gone; its name is free."""

    id: ScheduleId
    caller: AccountId
    at_ms: int
