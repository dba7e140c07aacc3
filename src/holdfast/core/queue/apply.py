"""What an event does to the queue, and to the money that goes with it."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from holdfast.core.escrow import apply as money
from holdfast.core.escrow.books import HoldAct
from holdfast.core.job.quorum import Quorum, replica_ids
from holdfast.core.job.record import JOB_LIFE, LIVE, Job, JobAct, JobState, Spec, hold_of, requeues_of, task_of
from holdfast.core.machine import step, why_not_step
from holdfast.core.queue.acts import FeeRaised, JobAdmitted, JobCancelled, enqueue_key, job_key
from holdfast.core.queue.books import Admitting, Queue, Remembered
from holdfast.core.refusal import Corrupt
from holdfast.core.values import AccountId, Amount, EventNo, HoldId, TaskId

QUORUM_REACHED: Final = "QUORUM_REACHED"
"""Why a replica ended whose job did without it (LEA-009)."""
FORGET_EVERY: Final = 256
"""Looking for keys that count no longer walks over those deleted last time, so it is not done for each job."""


def apply_admitted(state: Admitting, event: JobAdmitted) -> None:
    number, payload = state.last_event, event.payload
    job = Job(
        number,
        event.id,
        event.kind,
        event.caller,
        event.tier,
        event.height,
        event.tx_hash,
        event.nonce,
        event.request_hash,
        payload.size,
        payload.digest,
        event.max_fee,
        event.units,
        event.priority,
        event.enqueue_ms,
        event.expires_ms,
        event.requirements,
        event.proof,
        expires_height=event.expires_height,
        quorum_n=event.quorum_n,
        quorum_m=event.quorum_m,
    )
    begin_quorum(state, job)
    money.hold_for(state, HoldId(event.id), event.caller, event.max_fee)
    state.queue.jobs[event.id] = state.touched["job"][number] = job
    state.queue.count(job, 1)
    state.queue.line.add(job)
    state.queue.note_ends(job)
    if payload.inline is not None:
        state.touched["spec"][number] = Spec(number, payload.inline)
    state.claims.add(enqueue_key(event), number, event)
    state.claims.add(job_key(event.id), number, event)
    _remember(state.queue, event, number)


def _remember(queue: Queue, event: JobAdmitted, number: int) -> None:
    """JOB-002: keys are forgotten in the order in which they came, in lots, when they count no longer."""
    if queue.remembered and len(queue.remembered) % FORGET_EVERY == 0:
        kept = queue.remembered.items()
        for key, _ in list(takewhile(lambda entry: entry[1].until_ms <= event.enqueue_ms, kept)):
            del queue.remembered[key]
    if event.idempotency:
        queue.remembered.pop(event.idempotency, None)
        queue.remembered[event.idempotency] = Remembered(number, event.asked, event.remembered_until_ms)  # type: ignore[arg-type]


def apply_cancelled(state: Admitting, event: JobCancelled) -> None:
    job = end(state, event.id, JobAct.CANCEL, event.reason, event.ended_ms)
    settle(state, job, None, 0)


def begin_quorum(state: Admitting, job: Job) -> None:
    """LEA-009: a job that has replicas waits for what they say, from the first."""
    if job.quorum_m:
        state.quorums[job.id] = Quorum(job.id, job.quorum_n, job.quorum_m)


def apply_fee_raised(state: Admitting, event: FeeRaised) -> None:
    job = state.queue.jobs[event.id]
    money.raise_hold(state, hold_of(job), event.max_fee - job.max_fee)
    for each in (job, *replicas_of(state, job)):
        _rank(state, each, event)


def _rank(state: Admitting, job: Job, event: FeeRaised) -> None:
    is_waiting = job.state is JobState.QUEUED
    if is_waiting:
        state.queue.line.remove(job)
    job.max_fee, job.priority = event.max_fee, event.priority
    if is_waiting:
        state.queue.line.add(job)
    state.touched["job"][job.event] = job


def end(state: Admitting, id_: TaskId, act: JobAct, reason: str, ended_ms: int) -> Job:
    """The job's last step."""
    job = state.queue.jobs[id_]
    move(state, job, act)
    job.reason, job.ended_ms = reason, ended_ms
    for replica in replicas_of(state, job):
        if replica.state in LIVE:
            end(state, replica.id, JobAct.CANCEL, reason or QUORUM_REACHED, ended_ms)
    return job


def replicas_of(state: Admitting, job: Job) -> list[Job]:
    """LEA-009: its replicas, where it has some; they are in memory as long as it is."""
    return [state.queue.jobs[id_] for id_ in replica_ids(job.id, job.quorum_m)] if job.quorum_m else []


def move(state: Admitting, job: Job, act: JobAct) -> None:
    """JOB-007: one step of the table, and the counters with it."""
    after = step(JOB_LIFE, job.state, act)
    if after is None:
        raise Corrupt("JOB-007", f"job {job.id.hex()}: {why_not_step(JOB_LIFE, job.state, act)}")
    before, job.state, queue = job.state, after, state.queue
    if before is JobState.QUEUED:
        queue.line.remove(job)
    if after is JobState.QUEUED:
        queue.line.add(job)
    if (before in LIVE) != (after in LIVE):
        _count(queue, job)
    state.touched["job"][job.event] = job


def _count(queue: Queue, job: Job) -> None:
    if job.state in LIVE:
        queue.count(job, 1)
        queue.note_ends(job)
    else:
        queue.count(job, -1)
        queue.drop_ends(job)


def settle(state: Admitting, job: Job, payee: AccountId | None, charged: int) -> None:
    """The money of a job that ended, in the open block; a reorg takes it back and does it again."""
    height = state.open_height
    act = HoldAct.REFUND if payee is None else HoldAct.CHARGE
    money.settle_for(state, hold_of(job), act, height, payee, Amount(charged))
    job.charged, job.payee, job.settled_height = charged, payee, height
    state.touched["job"][job.event] = job


def refund_again(state: Admitting, id_: TaskId, number: EventNo) -> None:
    """CHN-004: what the end at this event gave back is given back in the block that is open now.

    A job that was put back since (RTY-001) has another reservation by now; this end was of an earlier one.
    """
    job = state.queue.jobs[id_]
    later = sum(put_back > number for put_back in state.requeued.get(id_, ()))
    if not later:
        settle(state, job, None, 0)
    else:
        earlier = hold_of(job, job.requeues - later)
        money.settle_for(state, earlier, HoldAct.REFUND, state.open_height, None, Amount(0))


def forget(state: Admitting, id_: HoldId) -> None:
    """The money of this job is final: history has it. Of a job that was put back, an earlier refund may be."""
    job = state.queue.jobs.get(task_of(id_))
    if job is None or job.parent:  # a replica goes with its job
        return
    if hold_of(job) == id_:
        for replica in replicas_of(state, job):
            del state.queue.jobs[replica.id]
        del state.queue.jobs[job.id]
        state.quorums.pop(job.id, None)
    elif job.id in state.requeued:
        left = job.requeues - requeues_of(id_) - 1
        state.requeued[job.id] = state.requeued[job.id][-left:] if left else []
        if not left:
            del state.requeued[job.id]
