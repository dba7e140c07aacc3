"""What an event does to schedules; jobs are admitted by the events of the queue."""

from __future__ import annotations

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.fsm import next_state, why_not_transition
from holdfast.core.base.records import record_from
from holdfast.core.schedule.messages import (
    ScheduleCreated,
    ScheduleEnded,
    ScheduleFired,
    SchedulePaused,
    ScheduleRefused,
    ScheduleRemoved,
    ScheduleResumed,
)
from holdfast.core.schedule.model import (
    FIRINGS_KEPT,
    SCHEDULE_TRANSITIONS,
    Firing,
    HasSchedules,
    Schedule,
    ScheduleId,
    ScheduleState,
    ScheduleTransition,
)


def apply_created(state: HasSchedules, event: ScheduleCreated) -> None:
    state.schedules.add(record_from(Schedule, event, event=state.last_event))


def apply_fired(state: HasSchedules, event: ScheduleFired) -> None:
    schedule = _move(state, event.id, ScheduleTransition.FIRE, event.next_ms)
    schedule.fired += 1
    schedule.refusals_in_row = 0
    if schedule.runs_left is not None:
        schedule.runs_left -= 1
    _keep(schedule, record_from(Firing, event))


def apply_refused(state: HasSchedules, event: ScheduleRefused) -> None:
    schedule = _move(state, event.id, ScheduleTransition.FIRE, event.next_ms)
    schedule.refused += 1
    schedule.refusals_in_row += 1
    _keep(schedule, record_from(Firing, event))


def apply_paused(state: HasSchedules, event: SchedulePaused) -> None:
    _move(state, event.id, ScheduleTransition.PAUSE).reason = event.reason


def apply_resumed(state: HasSchedules, event: ScheduleResumed) -> None:
    schedule = _move(state, event.id, ScheduleTransition.RESUME, event.next_ms)
    schedule.reason, schedule.refusals_in_row = "", 0


def apply_ended(state: HasSchedules, event: ScheduleEnded) -> None:
    _move(state, event.id, ScheduleTransition.END).reason = event.reason


def apply_removed(state: HasSchedules, event: ScheduleRemoved) -> None:
    state.schedules.remove(state.schedules.by_id[event.id])


def _keep(schedule: Schedule, firing: Firing) -> None:
    schedule.firings = [*schedule.firings[1 - FIRINGS_KEPT :], firing]


def _move(state: HasSchedules, id_: ScheduleId, transition: ScheduleTransition, next_ms: int | None = None) -> Schedule:
    """One transition of the table; the index of what is due follows."""
    schedule, due = state.schedules.by_id[id_], state.schedules.due_index
    after = next_state(SCHEDULE_TRANSITIONS, schedule.state, transition)
    if after is None:
        why = why_not_transition(SCHEDULE_TRANSITIONS, schedule.state, transition)
        raise Corrupt("JOB-014", f"schedule {id_.hex()}: {why}")
    due.remove(id_, schedule.next_ms)
    schedule.state, schedule.next_ms = after, schedule.next_ms if next_ms is None else next_ms
    if after is ScheduleState.ACTIVE:
        due.schedule(id_, schedule.next_ms)
    return schedule
