"""What an event does to the queue and to the money of its jobs."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.fsm import next_state, why_not_transition
from holdfast.core.base.values import AccountId, Amount, EventNo, ReservationId, TaskId
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.escrow.model import ReservationTransition
from holdfast.core.job.model import (
    JOB_TRANSITIONS,
    LIVE_STATES,
    FailedJob,
    Job,
    JobState,
    JobTransition,
    SpecRow,
    requeues_of_reservation,
    reservation_id,
    task_of_reservation,
)
from holdfast.core.job.quorum import Quorum, replica_ids
from holdfast.core.queue.messages import (
    FeeRaised,
    JobAdmitted,
    JobCancelled,
    JobExpired,
    JobFailed,
    enqueue_key,
    job_key,
)
from holdfast.core.queue.model import HasQueue, IdempotencyEntry, Queue

QUORUM_REACHED: Final = "QUORUM_REACHED"
"""Why a replica ended: its job ended without it (LEA-009)."""
EVICT_EVERY: Final = 256
"""Evicting expired keys walks over the dictionary's deleted entries, so it is not done for each job."""


def apply_job_admitted(state: HasQueue, event: JobAdmitted) -> None:
    number, payload = state.last_event, event.payload
    job = Job(
        event=number,
        id=event.id,
        kind=event.kind,
        caller=event.caller,
        tier=event.tier,
        height=event.height,
        tx_hash=event.tx_hash,
        nonce=event.nonce,
        request_hash=event.request_hash,
        size_bytes=payload.size,
        spec_digest=payload.digest,
        max_fee=event.max_fee,
        units=event.units,
        priority=event.priority,
        enqueue_ms=event.enqueue_ms,
        expires_ms=event.expires_ms,
        requirements=event.requirements,
        proof=event.proof,
        expires_height=event.expires_height,
        quorum_n=event.quorum_n,
        quorum_m=event.quorum_m,
    )
    start_quorum(state, job)
    escrow_apply.reserve_for(state, ReservationId(event.id), event.caller, event.max_fee)
    state.queue.jobs[event.id] = state.touched["job"][number] = job
    state.queue.count(job, 1)
    state.queue.ready_queue.add(job)
    state.queue.schedule_expiry(job)
    if payload.inline is not None:
        state.touched["spec"][number] = SpecRow(number, payload.inline)
    state.claims.add(enqueue_key(event), number, event)
    state.claims.add(job_key(event.id), number, event)
    _add_idempotency_entry(state.queue, event, number)


def _add_idempotency_entry(queue: Queue, event: JobAdmitted, number: int) -> None:
    """JOB-002: expired keys are dropped in the order of admission, in steps."""
    if queue.idempotency_entries and len(queue.idempotency_entries) % EVICT_EVERY == 0:
        kept = queue.idempotency_entries.items()
        for key, _ in list(takewhile(lambda entry: entry[1].until_ms <= event.enqueue_ms, kept)):
            del queue.idempotency_entries[key]
    if event.idempotency:
        queue.idempotency_entries.pop(event.idempotency, None)
        entry = IdempotencyEntry(EventNo(number), event.fingerprint, event.idempotency_until_ms)
        queue.idempotency_entries[event.idempotency] = entry


def apply_job_cancelled(state: HasQueue, event: JobCancelled) -> None:
    job = finish(state, event.id, JobTransition.CANCEL, event.reason, event.ended_ms)
    settle(state, job, None, 0)


def start_quorum(state: HasQueue, job: Job) -> None:
    """LEA-009: a job with replicas collects their votes from its admission on."""
    if job.quorum_m:
        state.quorums[job.id] = Quorum(job.id, job.quorum_n, job.quorum_m)


def apply_fee_raised(state: HasQueue, event: FeeRaised) -> None:
    job = state.queue.jobs[event.id]
    escrow_apply.raise_reservation(state, reservation_id(job), event.max_fee - job.max_fee)
    for waiting in (job, *replicas_of(state, job)):
        _reprioritize(state, waiting, event)


def _reprioritize(state: HasQueue, job: Job, event: FeeRaised) -> None:
    is_waiting = job.state is JobState.QUEUED
    if is_waiting:
        state.queue.ready_queue.remove(job)
    job.max_fee, job.priority = event.max_fee, event.priority
    if is_waiting:
        state.queue.ready_queue.add(job)
    state.touched["job"][job.event] = job


def finish(state: HasQueue, id_: TaskId, ending: JobTransition, reason: str, ended_ms: int) -> Job:
    """The job's last transition; its live replicas end with it."""
    job = state.queue.jobs[id_]
    transition(state, job, ending)
    job.reason, job.ended_ms = reason, ended_ms
    for replica in replicas_of(state, job):
        if replica.state in LIVE_STATES:
            finish(state, replica.id, JobTransition.CANCEL, reason or QUORUM_REACHED, ended_ms)
    return job


def replicas_of(state: HasQueue, job: Job) -> list[Job]:
    """LEA-009: the replicas of a job; they are in memory as long as it is."""
    return [state.queue.jobs[id_] for id_ in replica_ids(job.id, job.quorum_m)] if job.quorum_m else []


def transition(state: HasQueue, job: Job, step: JobTransition) -> None:
    """JOB-007: one transition of the table; ready queue and counters follow."""
    after = next_state(JOB_TRANSITIONS, job.state, step)
    if after is None:
        raise Corrupt("JOB-007", f"job {job.id.hex()}: {why_not_transition(JOB_TRANSITIONS, job.state, step)}")
    before, job.state, queue = job.state, after, state.queue
    if before is JobState.QUEUED:
        queue.ready_queue.remove(job)
    if after is JobState.QUEUED:
        queue.ready_queue.add(job)
    if (before in LIVE_STATES) != (after in LIVE_STATES):
        _update_counters(queue, job)
    state.touched["job"][job.event] = job


def _update_counters(queue: Queue, job: Job) -> None:
    if job.state in LIVE_STATES:
        queue.count(job, 1)
        queue.schedule_expiry(job)
    else:
        queue.count(job, -1)
        queue.unschedule_expiry(job)


def settle(state: HasQueue, job: Job, payee: AccountId | None, charged: int) -> None:
    """Settle the money of an ended job in the open block; a reorg rolls it back and settles it again."""
    height = state.open_height
    settlement = ReservationTransition.REFUND if payee is None else ReservationTransition.CHARGE
    escrow_apply.settle_reservation(state, reservation_id(job), settlement, height, payee, Amount(charged))
    job.charged, job.payee, job.settled_height = charged, payee, height
    state.touched["job"][job.event] = job


def reapply_refund(state: HasQueue, id_: TaskId, number: EventNo) -> None:
    """CHN-004: the refund of the end at this event is made again in the open block.

    A job that was requeued since (RTY-001) has another reservation by now; this end belongs to an earlier one.
    """
    job = state.queue.jobs[id_]
    later = sum(requeued > number for requeued in state.requeued.get(id_, ()))
    if not later:
        settle(state, job, None, 0)
    else:
        earlier = reservation_id(job, job.requeues - later)
        escrow_apply.settle_reservation(
            state, earlier, ReservationTransition.REFUND, state.open_height, None, Amount(0)
        )


def evict(state: HasQueue, id_: ReservationId) -> None:
    """The money of this job is final, so the job leaves memory. A requeued job stays while a later refund can move."""
    job = state.queue.jobs.get(task_of_reservation(id_))
    if job is None or job.parent:  # a replica is evicted with its job
        return
    if reservation_id(job) == id_:
        for replica in replicas_of(state, job):
            del state.queue.jobs[replica.id]
        del state.queue.jobs[job.id]
        state.quorums.pop(job.id, None)
    elif job.id in state.requeued:
        left = job.requeues - requeues_of_reservation(id_) - 1
        state.requeued[job.id] = state.requeued[job.id][-left:] if left else []
        if not left:
            del state.requeued[job.id]


def apply_job_expired(state: HasQueue, event: JobExpired) -> None:
    settle(state, finish(state, event.id, JobTransition.EXPIRE, event.reason, event.ended_ms), None, 0)


def apply_job_failed(state: HasQueue, event: JobFailed) -> None:
    last = state.queue.jobs[event.id].reason
    job = finish(state, event.id, JobTransition.EXHAUST, event.reason, event.ended_ms)
    settle(state, job, None, 0)
    state.touched["failed_job"][job.event] = FailedJob(
        event=job.event,
        id=job.id,
        kind=job.kind,
        caller=job.caller,
        max_fee=job.max_fee,
        attempts=job.attempts,
        requeues=job.requeues,
        reason=last or (event.reason if job.quorum_m else ""),
        failed_ms=event.ended_ms,
    )
