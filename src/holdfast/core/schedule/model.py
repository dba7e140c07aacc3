"""A schedule as the state keeps it (JOB-014): its transition table, its record, and the index of what is due."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NewType, Protocol

import msgspec

from holdfast.core.base.fsm import Transitions
from holdfast.core.base.values import AccountId, Digest, EventNo, KeyId, TaskId, Tier, add_count
from holdfast.core.index.due_index import DueIndex
from holdfast.core.queue.model import HasQueue
from holdfast.core.schedule.cron import MINUTE_MS, parse_cron

ScheduleId = NewType("ScheduleId", bytes)
SCHEDULE_ID_BYTES: Final = 16
SCHEDULE_NAME_MAX: Final = 64
FIRINGS_KEPT: Final = 10
"""How many of its last firings a schedule shows."""
MISSED_MAX: Final = 1_000
"""Missed firings are counted up to this number."""
OFFSET_MIN_MAX: Final = 14 * 60


class ScheduleState(StrEnum):
    """Where a schedule is (JOB-014)."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    ENDED = "ENDED"
    """It had all its runs, or its end is past; it stays until it is removed."""


class ScheduleTransition(StrEnum):
    """What can happen to a schedule."""

    FIRE = "fire"
    PAUSE = "pause"
    RESUME = "resume"
    END = "end"


SCHEDULE_TRANSITIONS: Final[Transitions[ScheduleState, ScheduleTransition]] = {
    ScheduleState.ACTIVE: {
        ScheduleTransition.FIRE: ScheduleState.ACTIVE,
        ScheduleTransition.PAUSE: ScheduleState.PAUSED,
        ScheduleTransition.END: ScheduleState.ENDED,
    },
    ScheduleState.PAUSED: {ScheduleTransition.RESUME: ScheduleState.ACTIVE},
    ScheduleState.ENDED: {},
}


class Firing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One firing: the job that it enqueued, or why that job was refused."""

    due_ms: int
    at_ms: int
    missed: int
    """Times before it that were due while no owner was there; they are not made up for."""
    task_id: TaskId = TaskId(b"")
    rule: str = ""
    refusal: str = ""
    message: str = ""


class Schedule(msgspec.Struct, array_like=True, gc=False):
    """A job that is enqueued again and again for one account."""

    id: ScheduleId
    event: EventNo
    """Of its creation; lists use it as cursor."""
    caller: AccountId
    name: str
    """One of its own among those of its caller."""
    tier: Tier
    key: KeyId
    """The API key that created it: its cap counts (SEC-002), and while it is not valid nothing is enqueued."""
    payload: bytes
    """Canonical bytes."""
    input_digest: Digest
    max_fee: int
    cron: str
    """Empty where it has an interval."""
    interval_ms: int
    offset_min: int
    """The zone of the expression, in minutes east of UTC."""
    created_ms: int
    next_ms: int
    runs_left: int | None = None
    until_ms: int | None = None
    state: ScheduleState = ScheduleState.ACTIVE
    reason: str = ""
    """Why it is paused, or ended."""
    fired: int = 0
    """Jobs that it has enqueued."""
    refused: int = 0
    """Firings whose job was refused."""
    refusals_in_row: int = 0
    firings: list[Firing] = []
    """The last ones, the newest at the end."""


def next_firing_ms(cron: str, interval_ms: int, offset_min: int, last_ms: int, now_ms: int) -> int | None:
    """JOB-014: the first time after `now_ms` that is due; an interval counts on from `last_ms`."""
    if cron:
        return parse_cron(cron).next_after(now_ms, offset_min)
    return last_ms if last_ms > now_ms else last_ms + ((now_ms - last_ms) // interval_ms + 1) * interval_ms


def missed_between(schedule: Schedule, now_ms: int) -> int:
    """JOB-014: how many times were due after `next_ms` and until now, counted up to `MISSED_MAX`."""
    if not schedule.cron:
        return min(MISSED_MAX, (now_ms - schedule.next_ms) // schedule.interval_ms)
    if now_ms - schedule.next_ms < MINUTE_MS:
        return 0
    missed = 0
    for at_ms in parse_cron(schedule.cron).firings(schedule.next_ms, schedule.offset_min):
        if at_ms > now_ms or missed == MISSED_MAX:
            break
        missed += 1
    return missed


class Schedules(msgspec.Struct):
    """All schedules, with indexes that follow every change."""

    by_id: dict[ScheduleId, Schedule] = {}
    by_name: dict[AccountId, dict[str, ScheduleId]] = {}
    """The names of each caller."""
    due_index: DueIndex = msgspec.field(default_factory=DueIndex)
    """When active ones are due."""
    input_uses: dict[Digest, int] = {}
    """How many schedules name an input (JOB-003)."""

    def add(self, schedule: Schedule) -> None:
        self.by_id[schedule.id] = schedule
        self.by_name.setdefault(schedule.caller, {})[schedule.name] = schedule.id
        if schedule.input_digest:
            add_count(self.input_uses, schedule.input_digest, 1)
        if schedule.state is ScheduleState.ACTIVE:
            self.due_index.schedule(schedule.id, schedule.next_ms)

    def remove(self, schedule: Schedule) -> None:
        del self.by_id[schedule.id]
        self.due_index.remove(schedule.id, schedule.next_ms)
        names = self.by_name[schedule.caller]
        del names[schedule.name]
        if not names:
            del self.by_name[schedule.caller]
        if schedule.input_digest:
            add_count(self.input_uses, schedule.input_digest, -1)

    def due_until(self, now_ms: int) -> Iterator[Schedule]:
        """Those that must fire now, the earliest seconds first."""
        for id_ in list(self.due_index.due_until(now_ms)):
            schedule = self.by_id[ScheduleId(id_)]
            if schedule.next_ms <= now_ms:
                yield schedule


def rebuild_schedules(schedules: Iterable[Schedule]) -> Schedules:
    """Schedules with indexes as they follow from the records."""
    rebuilt = Schedules()
    for schedule in schedules:
        rebuilt.add(schedule)
    return rebuilt


class HasSchedules(HasQueue, Protocol):
    """The parts of the state that this domain reads and changes."""

    schedules: Schedules
