"""A schedule that is due (JOB-014): the firing and the admission of its job are one decision, so they are one batch.

A crash before the batch leaves neither: the firing is due again. A crash after it leaves both, and the next time that
is due is another one. What was due while no owner was there fires once.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from holdfast.core.base.canonical import decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.values import ChainId
from holdfast.core.job.ids import tx_hash
from holdfast.core.queue.decide import build_enqueue, enqueue, enqueue_claims
from holdfast.core.queue.messages import Enqueue, JobAdmitted
from holdfast.core.schedule.decide import following_ms
from holdfast.core.schedule.messages import (
    FireSchedule,
    ScheduleEnded,
    ScheduleFired,
    SchedulePaused,
    ScheduleRefused,
)
from holdfast.core.schedule.model import HasSchedules, Schedule, ScheduleState, missed_between

RUNS_DONE: Final = "RUNS_DONE"
UNTIL_PAST: Final = "UNTIL_PAST"
REFUSED_IN_A_ROW: Final = "REFUSED_IN_A_ROW"
MESSAGE_MAX: Final = 300


def fire(state: HasSchedules, command: FireSchedule, now_ms: int) -> Decided | Refused:
    """JOB-014: at its time or after it, once; the job is admitted, or its refusal is recorded."""
    schedule = _due_schedule(state, command)
    if schedule is None:
        return Decided((), repeat_of=state.last_event)
    if now_ms < schedule.next_ms:
        return Refused("JOB-014", f"schedule {schedule.id.hex()} is due in {schedule.next_ms - now_ms} ms", "wait")
    answer = _admission(state, schedule, now_ms)
    if isinstance(answer, Refused):
        return Decided(_refused(state, schedule, answer, now_ms))
    admitted = answer.events[0]
    assert isinstance(admitted, JobAdmitted)
    next_ms = following_ms(schedule, now_ms)
    fired = ScheduleFired(
        id=schedule.id,
        caller=schedule.caller,
        due_ms=schedule.next_ms,
        at_ms=now_ms,
        missed=missed_between(schedule, now_ms),
        task_id=admitted.id,
        next_ms=next_ms or schedule.next_ms,
    )
    why_over = RUNS_DONE if schedule.runs_left == 1 else UNTIL_PAST if next_ms is None else ""
    return Decided((fired, *answer.events, *_ended(schedule, why_over, now_ms)), answer.attachments)


def claim_keys(state: HasSchedules, command: FireSchedule) -> tuple[bytes, ...]:
    """The claims that the admission of its job depends on (ENG-005)."""
    schedule = _due_schedule(state, command)
    request = None if schedule is None else build_request(state, schedule)
    return enqueue_claims(request) if isinstance(request, Enqueue) else ()


def build_request(state: HasSchedules, schedule: Schedule) -> Enqueue | Refused:
    """The request of the firing that is due. Schedule and time are in its transaction: each firing is one job."""
    policy, payload = state.policy, decode(schedule.payload)
    request = build_enqueue(policy, schedule.caller, schedule.tier, payload, schedule.max_fee, schedule.next_ms)
    if isinstance(request, Refused):
        return request
    call = {"max_fee": schedule.max_fee, "payload": payload, "schedule": bytes(schedule.id)}
    tx = tx_hash(ChainId(policy.chain_id), schedule.caller.encode(), schedule.next_ms, call)
    return msgspec.structs.replace(request, tx_hash=tx, key=schedule.key)


def _due_schedule(state: HasSchedules, command: FireSchedule) -> Schedule | None:
    """None where it has fired already, or was paused or removed since."""
    schedule = state.schedules.by_id.get(command.id)
    is_due = schedule is not None and (schedule.state, schedule.next_ms) == (ScheduleState.ACTIVE, command.due_ms)
    return schedule if is_due else None


def _admission(state: HasSchedules, schedule: Schedule, now_ms: int) -> Decided | Refused:
    if refusal := _why_not_key(state, schedule, now_ms):
        return refusal
    request = build_request(state, schedule)
    if isinstance(request, Refused):
        return request
    (answer,) = enqueue(state, (request,), now_ms)
    if isinstance(answer, Decided) and not answer.events:
        return Refused("JOB-002", f"event {answer.repeat_of} has admitted its transaction already", name="IdReused")
    return cast(Decided | Refused, answer)  # its claims are loaded


def _why_not_key(state: HasSchedules, schedule: Schedule, now_ms: int) -> Refused | None:
    """SEC-001: a key that is not valid any more enqueues nothing."""
    key = state.keys.get(schedule.key)
    if key is None or (key.revoked_ms is None and (key.expires_ms is None or now_ms < key.expires_ms)):
        return None
    return Refused("SEC-001", f"the key {key.id} that created it is not valid", name="KeyRevoked")


def _refused(state: HasSchedules, schedule: Schedule, refusal: Refused, now_ms: int) -> tuple[Event, ...]:
    """The refusal; after several in a row the schedule is paused with it."""
    next_ms = following_ms(schedule, now_ms)
    event = ScheduleRefused(
        id=schedule.id,
        caller=schedule.caller,
        due_ms=schedule.next_ms,
        at_ms=now_ms,
        missed=missed_between(schedule, now_ms),
        rule=refusal.rule,
        refusal=refusal.name,
        message=refusal.message[:MESSAGE_MAX],
        next_ms=next_ms or schedule.next_ms,
    )
    if next_ms is None:
        return event, *_ended(schedule, UNTIL_PAST, now_ms)
    if schedule.refusals_in_row + 1 < state.policy.schedule.refusals_in_row_max:
        return (event,)
    return event, SchedulePaused(schedule.id, schedule.caller, REFUSED_IN_A_ROW, now_ms)


def _ended(schedule: Schedule, reason: str, now_ms: int) -> tuple[Event, ...]:
    return (ScheduleEnded(schedule.id, schedule.caller, reason, now_ms),) if reason else ()
