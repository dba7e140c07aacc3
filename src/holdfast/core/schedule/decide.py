"""Whether a schedule may be created, paused, resumed or removed (JOB-014)."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Final

from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.fsm import why_not_transition
from holdfast.core.base.records import record_from
from holdfast.core.base.values import I64_MAX, AccountId
from holdfast.core.policy import SchedulePolicy
from holdfast.core.queue.pauses import REASON_MAX
from holdfast.core.schedule.cron import DAY_MINUTES, MINUTE_MS, NotCron, parse_cron
from holdfast.core.schedule.messages import (
    CreateSchedule,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    ScheduleCreated,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleResumed,
)
from holdfast.core.schedule.model import (
    OFFSET_MIN_MAX,
    SCHEDULE_ID_BYTES,
    SCHEDULE_NAME_MAX,
    SCHEDULE_TRANSITIONS,
    HasSchedules,
    Schedule,
    ScheduleId,
    ScheduleState,
    ScheduleTransition,
    next_firing_ms,
)

SCHEDULE_TAG: Final = "holdfast.schedule.v1"
RUNS_MAX: Final = 1_000_000_000
_TERMS: Final = ("tier", "payload", "input_digest", "max_fee", "cron", "interval_ms", "offset_min", "until_ms")
"""What two requests for one name must have in common to be the same."""


def create(state: HasSchedules, command: CreateSchedule, now_ms: int) -> Decided | Refused:
    """JOB-014: the same name with the same terms is a repeat, with other terms it is taken."""
    if refusal := _why_not_terms(command, state.policy.schedule, now_ms):
        return refusal
    names = state.schedules.by_name.get(command.caller, {})
    if (known := names.get(command.name)) is not None:
        return _repeat(state.schedules.by_id[known], command)
    if refusal := _why_no_room(state, command.caller, len(names)):
        return refusal
    next_ms = next_firing_ms(command.cron, command.interval_ms, command.offset_min, now_ms, now_ms)
    if next_ms is None or (command.until_ms is not None and next_ms > command.until_ms):
        return _refuse("cron: it never fires" if next_ms is None else "until_ms: it is before the first firing")
    number = state.last_event + 1
    id_ = ScheduleId(H(SCHEDULE_TAG, command.caller.encode(), command.name.encode(), number)[:SCHEDULE_ID_BYTES])
    event = record_from(ScheduleCreated, command, id=id_, created_ms=now_ms, next_ms=next_ms, runs_left=command.runs)
    return Decided((event,))


def _repeat(known: Schedule, command: CreateSchedule) -> Decided | Refused:
    if all(getattr(known, name) == getattr(command, name) for name in _TERMS):
        return Decided((), repeat_of=known.event)
    hint = "remove it before, or take another name"
    return Refused("JOB-014", f"{command.caller} has a schedule {command.name!r} with other terms", hint, "IdReused")


def _why_no_room(state: HasSchedules, caller: AccountId, own: int) -> Refused | None:
    policy, all_ = state.policy.schedule, len(state.schedules.by_id)
    if own >= policy.per_caller_max:
        message = f"{caller} has {own} schedules, at most {policy.per_caller_max}"
        return Refused("JOB-014", message, "remove one that has ended", "QueueFull")
    if all_ >= policy.total_max:
        return Refused("JOB-014", f"there are {all_} schedules, as many as there may be", name="QueueFull")
    return None


def _why_not_terms(command: CreateSchedule, policy: SchedulePolicy, now_ms: int) -> Refused | None:
    name, until_ms, runs, size = command.name, command.until_ms, command.runs, len(command.payload)
    faults = {
        f"name: 1–{SCHEDULE_NAME_MAX} printable characters": not 1 <= len(name) <= SCHEDULE_NAME_MAX
        or not name.isprintable()
        or name != name.strip(),
        "cron or interval_ms: give one of them": bool(command.cron) == bool(command.interval_ms),
        f"offset_min: {command.offset_min} is not within ±{OFFSET_MIN_MAX}": abs(command.offset_min) > OFFSET_MIN_MAX,
        f"runs: {runs} is not in 1 … {RUNS_MAX}": runs is not None and not 1 <= runs <= RUNS_MAX,
        f"until_ms: {until_ms} is not after now": until_ms is not None and not now_ms < until_ms <= I64_MAX,
        f"payload: {size} bytes, at most {policy.payload_bytes_max}; upload large inputs before, and name them":
        size > policy.payload_bytes_max,
    }  # fmt: skip
    message = "; ".join(fault for fault, is_present in faults.items() if is_present)
    return _refuse(message) if message else _why_too_often(command, policy, now_ms)


def _why_too_often(command: CreateSchedule, policy: SchedulePolicy, now_ms: int) -> Refused | None:
    least, most = policy.interval_ms_min, policy.interval_ms_max
    if not command.cron:
        is_within = least <= command.interval_ms <= most
        return None if is_within else _refuse(f"interval_ms: {command.interval_ms} is not in {least} … {most}")
    try:
        cron = parse_cron(command.cron)
    except NotCron as fault:
        return _refuse(f"cron: {fault}", "minute hour day-of-month month day-of-week, such as */15 9-17 * * mon-fri")
    if least <= MINUTE_MS:
        return None
    first = islice(cron.firings(now_ms, command.offset_min), DAY_MINUTES + 1)
    if any(later - earlier < least for earlier, later in pairwise(first)):
        return _refuse(f"cron: it fires more often than every {least} ms")
    return None


def pause(state: HasSchedules, command: PauseSchedule, now_ms: int) -> Decided | Refused:
    schedule = schedule_of(state, command.id, command.by)
    if isinstance(schedule, Refused):
        return schedule
    if len(command.reason) > REASON_MAX or not command.reason.isprintable():
        return _refuse(f"reason: at most {REASON_MAX} printable characters")
    if schedule.state is ScheduleState.PAUSED:
        return Decided((), repeat_of=schedule.event)
    if why := why_not_transition(SCHEDULE_TRANSITIONS, schedule.state, ScheduleTransition.PAUSE):
        return Refused("JOB-014", f"schedule {schedule.name!r}: {why}", "`holdfast job schedule show` says how it is")
    return Decided((SchedulePaused(schedule.id, schedule.caller, command.reason, now_ms),))


def resume(state: HasSchedules, command: ResumeSchedule, now_ms: int) -> Decided | Refused:
    """JOB-014: what was due while it was paused is not made up for."""
    schedule = schedule_of(state, command.id, command.by)
    if isinstance(schedule, Refused):
        return schedule
    if schedule.state is ScheduleState.ACTIVE:
        return Decided((), repeat_of=schedule.event)
    if why := why_not_transition(SCHEDULE_TRANSITIONS, schedule.state, ScheduleTransition.RESUME):
        return Refused("JOB-014", f"schedule {schedule.name!r}: {why}", "create another one")
    next_ms = following_ms(schedule, now_ms)
    if next_ms is None:
        return Refused("JOB-014", f"schedule {schedule.name!r}: its end is past", "remove it and create another one")
    return Decided((ScheduleResumed(schedule.id, schedule.caller, next_ms, now_ms),))


def remove(state: HasSchedules, command: RemoveSchedule, now_ms: int) -> Decided | Refused:
    schedule = schedule_of(state, command.id, command.by)
    if isinstance(schedule, Refused):
        return schedule
    return Decided((ScheduleRemoved(schedule.id, schedule.caller, now_ms),))


def schedule_of(state: HasSchedules, id_: ScheduleId, by: AccountId | None) -> Schedule | Refused:
    """The schedule, where it belongs to this requester; to others it does not exist (JOB-010)."""
    schedule = state.schedules.by_id.get(id_)
    if schedule is None or (by is not None and by != schedule.caller):
        return Refused("JOB-014", f"no schedule {id_.hex()}", "`holdfast job schedule list` shows them", "NotFound")
    return schedule


def following_ms(schedule: Schedule, now_ms: int) -> int | None:
    """When it is due next after now, None where it has ended by then."""
    terms = schedule.cron, schedule.interval_ms, schedule.offset_min
    next_ms = next_firing_ms(*terms, schedule.next_ms, now_ms)
    is_over = next_ms is None or (schedule.until_ms is not None and next_ms > schedule.until_ms)
    return None if is_over else next_ms


def _refuse(message: str, hint: str = "") -> Refused:
    return Refused("JOB-014", message, hint, "InvalidParams")
