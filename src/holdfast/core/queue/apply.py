"""What an event does to the queue and to the money of its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.fsm import next_state, why_not_transition
from holdfast.core.base.records import record_from
from holdfast.core.base.values import AccountId, EventNo, ProviderId, ReservationId, TaskId
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.index.unique_ids import Claim
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
from holdfast.core.job.spec import with_denied
from holdfast.core.queue.messages import (
    INVALID_INPUT,
    FeeRaised,
    JobAdmitted,
    JobCancelled,
    JobExpired,
    JobFailed,
    enqueue_key,
    idempotency_checksum,
    idempotency_key,
    job_key,
)
from holdfast.core.queue.model import HasQueue, InvalidInputs

QUEUED: Final = JobState.QUEUED
INVALID_INPUTS_KEPT: Final = 1_024
QUORUM_REACHED: Final = "QUORUM_REACHED"
"""Why a replica ended: its job ended without it (LEA-009)."""


def apply_jobs_admitted(state: HasQueue, events: Sequence[JobAdmitted], numbers: Sequence[EventNo]) -> None:
    claim, specs, jobs = state.claims.add, state.touched["spec"], list[Job]()
    for number, event in zip(numbers, events, strict=True):
        payload = event.payload
        jobs.append(_admitted_job(event, number))
        if payload.inline is not None:
            specs[number] = SpecRow(number, payload.inline)
        claim(enqueue_key(event), number)
        claim(job_key(event.id), number)
        if event.idempotency:
            used_for = Claim(number, idempotency_checksum(event.fingerprint), event.idempotency_until_ms)
            state.claims.add_temporary(idempotency_key(event.idempotency), used_for)
    escrow_apply.reserve_for(state, [(ReservationId(event.id), event.caller, event.max_fee) for event in events])
    add_live(state, jobs)


def _admitted_job(event: JobAdmitted, number: EventNo) -> Job:
    payload = event.payload
    job = Job(  # by position: by name takes six times as long, and every job needs it
        number, event.id, event.kind, event.caller, event.tier, event.height, event.tx_hash, event.nonce,
        event.request_hash, payload.size, payload.digest, event.max_fee, event.units, event.priority, event.enqueue_ms,
        event.expires_ms, event.requirements, event.proof,
    )  # fmt: skip
    job.expires_height, job.quorum_n, job.quorum_m = event.expires_height, event.quorum_n, event.quorum_m
    job.is_public, job.input_digest = int(event.is_public), event.input_digest
    job.run_ms_max = event.run_ms_max
    job.not_before_ms = job.run_at_ms = event.not_before_ms
    return job


def add_live(state: HasQueue, jobs: Sequence[Job]) -> None:
    """Jobs wait from now on: records, counters, ready queue and expiry times have them."""
    queue, touched = state.queue, state.touched["job"]
    records = queue.jobs
    for job in jobs:
        if job.input_digest and job.id not in records:
            queue.count_input(job, 1)
        records[job.id] = touched[job.event] = job
        if job.quorum_m:  # LEA-009: it collects the votes of its replicas from its admission on
            state.quorums[job.id] = Quorum(job.id, job.quorum_n, job.quorum_m)
    queue.count(jobs, 1)
    queue.schedule_expiry(jobs)
    queue.ready_queue.add_many(jobs)


def apply_job_cancelled(state: HasQueue, event: JobCancelled) -> None:
    finish(state, event.id, JobTransition.CANCEL, event.reason, event.ended_ms)


def apply_fee_raised(state: HasQueue, event: FeeRaised) -> None:
    job = state.queue.jobs[event.id]
    escrow_apply.raise_reservation(state, reservation_id(job), event.max_fee - job.max_fee)
    for waiting in (job, *replicas_of(state, job)):
        with _change_order(state, waiting):
            waiting.max_fee, waiting.priority = event.max_fee, event.priority


@contextmanager
def _change_order(state: HasQueue, job: Job) -> Iterator[None]:
    """While what its place depends on is changed, a waiting job is not in the ready queue."""
    waiting, ready_queue = [job] if job.state is QUEUED else [], state.queue.ready_queue
    ready_queue.remove_many(waiting)
    yield
    ready_queue.add_many(waiting)
    state.touched["job"][job.event] = job


def finish(state: HasQueue, id_: TaskId, ending: JobTransition, reason: str, ended_ms: int) -> Job:
    """The job's last transition; its live replicas end with it."""
    job = state.queue.jobs[id_]
    transition(state, [job], ending)
    job.reason, job.ended_ms = reason, ended_ms
    state.input_claims.pop(id_, None)
    for replica in replicas_of(state, job):
        if replica.state in LIVE_STATES:
            finish(state, replica.id, JobTransition.CANCEL, reason or QUORUM_REACHED, ended_ms)
    return job


def complete(state: HasQueue, ends: Sequence[tuple[TaskId, int]]) -> None:
    """The same for jobs without replicas whose proofs were accepted at these times."""
    jobs = state.queue.jobs.all_of([id_ for id_, _ in ends])
    transition(state, jobs, JobTransition.ACCEPT)
    for job, (_, ended_ms) in zip(jobs, ends, strict=True):
        job.reason, job.ended_ms = "", ended_ms
        if state.input_claims:
            state.input_claims.pop(job.id, None)


def replicas_of(state: HasQueue, job: Job) -> list[Job]:
    """LEA-009: the replicas of a job; they are in memory as long as it is."""
    return [state.queue.jobs[id_] for id_ in replica_ids(job.id, job.quorum_m)] if job.quorum_m else []


def transition(state: HasQueue, jobs: Sequence[Job], step: JobTransition) -> None:
    """JOB-007: one transition of the table, for jobs in one state; ready queue and counters follow."""
    queue, touched, before = state.queue, state.touched["job"], jobs[0].state
    after = next_state(JOB_TRANSITIONS, before, step)
    for job in jobs:
        if after is None or job.state is not before:
            raise Corrupt("JOB-007", f"job {job.id.hex()}: {why_not_transition(JOB_TRANSITIONS, job.state, step)}")
        job.state = after
        touched[job.event] = job
    if before is QUEUED:
        queue.ready_queue.remove_many(jobs)
    if after is QUEUED:
        queue.ready_queue.add_many(jobs)
    if (is_live := after in LIVE_STATES) != (before in LIVE_STATES):
        queue.count(jobs, 1 if is_live else -1)
        (queue.schedule_expiry if is_live else queue.unschedule_expiry)(jobs)


JobSettlement = tuple[EventNo, TaskId, AccountId | None, int]
"""The event that settles the money of an ended job, the job, the payee and the amount; without a payee a refund."""


def settle(state: HasQueue, settlements: Sequence[JobSettlement]) -> None:
    """Settle the money of ended jobs in the open block, which includes their ends."""
    height, touched = state.open_height, state.touched["job"]
    reserved: list[escrow_apply.Settlement] = []
    jobs = state.queue.jobs.all_of([id_ for _, id_, _, _ in settlements])
    for (number, _, payee, charged), job in zip(settlements, jobs, strict=True):
        job.charged, job.payee, job.settled_height = charged, payee, height
        touched[job.event] = job
        reserved.append((number, reservation_id(job), payee, charged))
    escrow_apply.settle_all(state, height, reserved)


def include_end(state: HasQueue, id_: TaskId, end: EventNo, number: EventNo) -> None:
    """ESC-001: the end at this event refunds the job in the open block, also where a reorg includes it again.

    A job that was requeued since (RTY-001) has another reservation by now; this end belongs to an earlier one.
    """
    later = sum(requeued > end for requeued in state.requeued.get(id_, ()))
    if not later:
        settle(state, [(number, id_, None, 0)])
    else:
        job = state.queue.jobs[id_]
        earlier = reservation_id(job, job.requeues - later)
        escrow_apply.settle_all(state, state.open_height, [(number, earlier, None, 0)])


def evict(state: HasQueue, id_: ReservationId) -> list[TaskId]:
    """The money of this job is final, so the job leaves memory. A requeued job stays while a later refund can move.

    Returns the ids of what left: a replica is evicted with its job.
    """
    job = state.queue.jobs.get(task_of_reservation(id_))
    if job is None or job.parent:
        return []
    if reservation_id(job) == id_:
        evicted = [job.id, *(replica.id for replica in replicas_of(state, job))]
        for each in evicted:
            state.queue.count_input(state.queue.jobs[each], -1)
            del state.queue.jobs[each]
        state.quorums.pop(job.id, None)
        return evicted
    if job.id in state.requeued:
        left = job.requeues - requeues_of_reservation(id_) - 1
        state.requeued[job.id] = state.requeued[job.id][-left:] if left else []
        if not left:
            del state.requeued[job.id]
    return []


def apply_job_expired(state: HasQueue, event: JobExpired) -> None:
    finish(state, event.id, JobTransition.EXPIRE, event.reason, event.ended_ms)


def apply_job_failed(state: HasQueue, event: JobFailed) -> None:
    if event.reason == INVALID_INPUT:
        _count_invalid_input(state, state.queue.jobs[event.id].caller, event.epoch)
    last = state.queue.jobs[event.id].reason
    job = finish(state, event.id, JobTransition.EXHAUST, event.reason, event.ended_ms)
    why = last or (event.reason if job.quorum_m else "")
    state.touched["failed_job"][job.event] = record_from(FailedJob, job, reason=why, failed_ms=event.ended_ms)


def _count_invalid_input(state: HasQueue, caller: AccountId, epoch: int) -> None:
    """JOB-012: counts of earlier epochs are forgotten when they would be many."""
    counts = state.invalid_inputs
    if len(counts) >= INVALID_INPUTS_KEPT:
        for account in [account for account, known in counts.items() if known.epoch < epoch]:
            del counts[account]
    known = counts.get(caller)
    counts[caller] = InvalidInputs(epoch, known.count + 1 if known is not None and known.epoch == epoch else 1)


def deny_provider(state: HasQueue, job: Job, provider_id: ProviderId) -> None:
    """JOB-012: this provider does not get this job again, nor another replica of it."""
    requested = state.queue.jobs[job.parent] if job.parent else job
    for each in (requested, *replicas_of(state, requested)):
        with _change_order(state, each):
            each.requirements = with_denied(each.requirements, provider_id)
