"""Requeueing a job that failed too often (RTY-001): an operator's request, with the fee reserved anew.

The refund of the failure is a transaction in a block: it stays there, and a reorg that moves it moves that reservation
alone. The new reservation has another id (`reservation_id`), so each is settled once.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Command, Decided, Event
from holdfast.core.base.fsm import why_not_transition
from holdfast.core.base.records import record_from
from holdfast.core.base.values import Amount, TaskId
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.escrow.decide import check_funds
from holdfast.core.job.model import JOB_TRANSITIONS, LIVE_STATES, Job, JobState, JobTransition, ready_ms, reservation_id
from holdfast.core.job.quorum import replica_ids
from holdfast.core.queue import priority
from holdfast.core.queue.apply import add_live, replicas_of
from holdfast.core.queue.decide import check_capacity, expires_height
from holdfast.core.queue.messages import INVALID_INPUT
from holdfast.core.queue.model import HasQueue
from holdfast.core.queue.replicas import ReplicaAdmitted

REQUEUE_TAG: Final = "holdfast.requeue.v1"


class Requeue(Command, frozen=True):
    """Requeue a failed job. `record` is the job's row, for one that has left memory."""

    id: TaskId
    record: Job | None = None
    replicas: tuple[Job, ...] = ()
    """The rows of its replicas (LEA-009)."""


class JobRequeued(Event, frozen=True, tag=57):
    """A failed job waits again, as if it were new; its attempts go on counting (LEA-001)."""

    id: TaskId
    number: int
    """How often it was requeued, this time included."""
    job: Job
    """The whole record: the journal must not depend on how long memory keeps ended jobs."""


def requeue_key(id_: TaskId, number: int) -> bytes:
    """ENG-005: a job is requeued once for each failure, however late the request is repeated."""
    return b"w" + H(REQUEUE_TAG, id_, number)


def requeue(state: HasQueue, command: Requeue, now_ms: int) -> Decided | Refused:
    """RTY-001: failures and time to live start again; the requester must be able to pay once more."""
    job = _find_job(state, command)
    if job is not None and job.parent:
        message = f"job {job.id.hex()} is a replica of {job.parent.hex()}"
        return Refused("LEA-009", message, "requeue that job: its replicas follow it", "InvalidParams")
    if job is None or _is_purged(state, job, now_ms):
        return Refused(
            "RTY-001", f"no job {command.id.hex()}", "it never existed, or its tombstone was purged", "NotFound"
        )
    if job.requeues and job.state in LIVE_STATES:  # the same request again while the requeued job lives is a repeat
        first = state.claims.event_of(requeue_key(job.id, job.requeues))
        if first is not None:
            return Decided((), repeat_of=first)
    if why := why_not_transition(JOB_TRANSITIONS, job.state, JobTransition.REQUEUE):
        return Refused("JOB-007", f"job {job.id.hex()}: {why}", "only a job that failed is requeued")
    if job.reason == INVALID_INPUT and job.requeues:
        return Refused("JOB-012", f"job {job.id.hex()}: its input was called invalid again", "submit another job")
    event = JobRequeued(job.id, job.requeues + 1, _requeued_job(state, job, now_ms))
    if state.claims.event_of(requeue_key(job.id, event.number)) is not None:
        return Refused("RTY-001", f"job {job.id.hex()} was requeued already", "read its current state")
    more = max(1, job.quorum_m)
    if refusal := check_capacity(state, job.caller, more) or check_funds(state.ledger, job.caller, job.max_fee):
        return refusal
    replicas = replicas_of(state, job) if job.id in state.queue.jobs else command.replicas
    earlier, ids = {replica.id: replica for replica in replicas}, replica_ids(job.id, job.quorum_m)
    if earlier.keys() != set(ids):
        hint = "their tombstones were purged"
        return Refused("RTY-001", f"the replicas of job {job.id.hex()} are gone", hint, "NotFound")
    again = [record_from(ReplicaAdmitted, earlier[id_], parent=job.id, index=index) for index, id_ in enumerate(ids)]
    return Decided((event, *again))


def _find_job(state: HasQueue, command: Requeue) -> Job | None:
    record = command.record
    return state.queue.jobs.get(command.id) or (record if record is not None and record.id == command.id else None)


def _is_purged(state: HasQueue, job: Job, now_ms: int) -> bool:
    """TTL-002: an expired tombstone may be purged by now, and the payload with it."""
    return job.id not in state.queue.jobs and (job.ended_ms or 0) + state.policy.ttl.tombstone_ms <= now_ms


def requeue_claim_keys(state: HasQueue, command: Requeue) -> tuple[bytes, ...]:
    """The claim that the decision depends on, so that the engine loads an old one before."""
    job = _find_job(state, command)
    return () if job is None else (requeue_key(job.id, job.requeues + (job.state is JobState.FAILED)),)


def _requeued_job(state: HasQueue, job: Job, now_ms: int) -> Job:
    rank = priority.sort_priority(job.max_fee, job.size_bytes, job.tier, ready_ms(job), state.policy.priority)
    lasts_ms = job.expires_ms - (job.requeued_ms or ready_ms(job))
    return msgspec.structs.replace(
        job,
        state=JobState.QUEUED,
        priority=rank,
        failures=0,
        not_before_ms=0,
        expires_ms=now_ms + lasts_ms,
        relative_expires_ms=None,
        expires_height=expires_height(state),
        charged=None,
        payee=None,
        settled_height=None,
        ended_ms=None,
        reason="",
        requeues=job.requeues + 1,
        requeued_ms=now_ms,
    )


def apply_job_requeued(state: HasQueue, event: JobRequeued) -> None:
    """The job lives again; while an earlier refund of it is not final, this event is remembered."""
    known, job = state.queue.jobs.get(event.id), msgspec.structs.replace(event.job)
    if known is not None:
        if why := why_not_transition(JOB_TRANSITIONS, known.state, JobTransition.REQUEUE):
            raise Corrupt("JOB-007", f"job {event.id.hex()}: {why}")
        state.requeued.setdefault(event.id, []).append(state.last_event)
    escrow_apply.reserve_for(state, [(reservation_id(job), job.caller, Amount(job.max_fee))])
    add_live(state, [job])
    state.touched["failed_job"][job.event] = None
    state.claims.add(requeue_key(event.id, event.number), state.last_event)
