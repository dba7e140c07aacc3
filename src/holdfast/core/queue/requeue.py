"""Putting a job back that failed too often (RTY-001): an operator's act, with its fee reserved anew.

The refund of the failure is a transaction of a block of its own: it stays where it is, and a reorg that moves it
moves that reservation alone. The new one has another name (`hold_of`), so both are settled once.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core import priority
from holdfast.core.canon import H
from holdfast.core.escrow import apply as money
from holdfast.core.event import Decided, Event
from holdfast.core.job.quorum import replica_ids
from holdfast.core.job.record import JOB_LIFE, LIVE, Job, JobAct, JobState, hold_of
from holdfast.core.machine import why_not_step
from holdfast.core.queue.apply import begin_quorum, replicas_of
from holdfast.core.queue.books import Admitting
from holdfast.core.queue.decide import expires_height, why_not_paid, why_not_room
from holdfast.core.queue.replicas import admitted
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.values import Amount, TaskId

REQUEUE_TAG: Final = "holdfast.requeue.v1"


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """Put a job back. `record` is the job as history has it, for one that memory has let go."""

    id: TaskId
    record: Job | None = None
    replicas: tuple[Job, ...] = ()
    """And those of its replicas, where it has some (LEA-009)."""


class JobRequeued(Event, frozen=True, tag=57):
    """A job that had failed waits again, as if it were new; its attempts go on counting (LEA-001)."""

    id: TaskId
    number: int
    """How often it was put back, with this time."""
    job: Job
    """All of it: the journal must not depend on how long memory keeps what has ended."""


def requeue_key(id_: TaskId, number: int) -> bytes:
    """ENG-005: a job is put back once for each time it failed, however late somebody asks again."""
    return b"w" + H(REQUEUE_TAG, id_, number)


def requeue(state: Admitting, command: Requeue, now_ms: int) -> Decided | Refused:
    """RTY-001: failures begin anew, the time to live too; the requester must be able to pay once more."""
    job = _known(state, command)
    if job is not None and job.parent:
        says = f"job {job.id.hex()} is a replica of {job.parent.hex()}"
        return Refused("LEA-009", says, "put that one back: they go together", "InvalidParams")
    if job is None or _is_buried(state, job, now_ms):
        return Refused("RTY-001", f"no job {command.id.hex()}", "it never was, or its tombstone is gone", "NotFound")
    if job.requeues and job.state in LIVE and (first := _since(state, job)) is not None:
        return first
    if why := why_not_step(JOB_LIFE, job.state, JobAct.REQUEUE):
        return Refused("JOB-007", f"job {job.id.hex()}: {why}", "only a job that failed is put back")
    event = JobRequeued(job.id, job.requeues + 1, _put_back(state, job, now_ms))
    if state.claims.event_of(requeue_key(job.id, event.number)) is not None:
        return Refused("RTY-001", f"job {job.id.hex()} was put back already", "look at it as it is now")
    more = max(1, job.quorum_m)
    if no := why_not_room(state, job.caller, more) or why_not_paid(state, job.caller, job.max_fee):
        return no
    replicas = replicas_of(state, job) if job.id in state.queue.jobs else command.replicas
    before = {each.id: each for each in replicas}
    if before.keys() != set(replica_ids(job.id, job.quorum_m)):
        return Refused("RTY-001", f"the replicas of job {job.id.hex()} are gone", "their tombstones are", "NotFound")
    return Decided((event, *admitted(job.id, job.quorum_m, "", before)))


def _known(state: Admitting, command: Requeue) -> Job | None:
    record = command.record
    return state.queue.jobs.get(command.id) or (record if record is not None and record.id == command.id else None)


def _is_buried(state: Admitting, job: Job, now_ms: int) -> bool:
    """TTL-002: a tombstone whose time is over may be gone by now, and the payload with it."""
    is_in_memory = job.id in state.queue.jobs
    return not is_in_memory and (job.ended_ms or 0) + state.policy.ttl.tombstone_ms <= now_ms


def claim_asked_for(state: Admitting, command: Requeue) -> bytes | None:
    """The claim that this depends on, so that an old one is recalled before the decision."""
    job = _known(state, command)
    return None if job is None else requeue_key(job.id, job.requeues + (job.state is JobState.FAILED))


def _since(state: Admitting, job: Job) -> Decided | None:
    """Asked again while the job that was put back lives: it is so already."""
    number = state.claims.event_of(requeue_key(job.id, job.requeues))
    return None if number is None else Decided((), since=number)


def _put_back(state: Admitting, job: Job, now_ms: int) -> Job:
    rank = priority.key(job.max_fee, job.size_bytes, job.tier, job.enqueue_ms, state.policy.priority)
    lasts_ms = job.expires_ms - (job.requeued_ms or job.enqueue_ms)
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


def apply_requeued(state: Admitting, event: JobRequeued) -> None:
    """The job lives again; that an earlier refund of it can still move is remembered until it is final."""
    known, job, queue = state.queue.jobs.get(event.id), msgspec.structs.replace(event.job), state.queue
    if known is not None:
        if why := why_not_step(JOB_LIFE, known.state, JobAct.REQUEUE):
            raise Corrupt("JOB-007", f"job {event.id.hex()}: {why}")
        state.requeued.setdefault(event.id, []).append(state.last_event)
    money.hold_for(state, hold_of(job), job.caller, Amount(job.max_fee))
    queue.jobs[event.id] = state.touched["job"][job.event] = job
    begin_quorum(state, job)
    queue.count(job, 1)
    queue.note_ends(job)
    queue.line.add(job)
    state.touched["failed_job"][job.event] = None
    state.claims.add(requeue_key(event.id, event.number), state.last_event, event)
