"""What the leases of replicas mean for the job they are of (LEA-009): who has one, when all of them end, and when so
many have ended that the rest can never agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, Protocol

from holdfast.core.event import Event
from holdfast.core.job.quorum import Quorum, Vote, replica_ids
from holdfast.core.job.record import LIVE, Job, JobAct
from holdfast.core.lease.acts import JobExpired, JobFailed, cancelled
from holdfast.core.lease.record import Lease, Leases, Leasing
from holdfast.core.queue.apply import QUORUM_REACHED
from holdfast.core.queue.replicas import ReplicaEnded
from holdfast.core.values import LeaseId, ProviderId, TaskId

QUORUM_LOST: Final = "QUORUM_LOST"
HAS_ANOTHER: Final = "has another replica of this job"
__all__ = ["QUORUM_LOST", "QUORUM_REACHED", "closed", "given_up", "holders", "is_lost", "live_leases", "lost", "whole"]


class Held(Protocol):
    """What must be known to say who has a replica."""

    leases: Leases
    quorums: dict[TaskId, Quorum]


def whole(state: Leasing, job: Job) -> Job:
    """The job that was asked for: of a replica, that which it is one of."""
    return state.queue.jobs[job.parent] if job.parent else job


def live_leases(state: Leasing, job: Job) -> list[Lease]:
    """All live leases of a job: one at most, or one for each replica (LEA-002)."""
    ids = replica_ids(job.id, job.quorum_m) if job.quorum_m else (job.id,)
    return [lease for id_ in ids if (lease := state.leases.by_job.get(id_)) is not None]


def closed(state: Leasing, job: Job, reason: str, now_ms: int, but: LeaseId | None = None) -> list[Event]:
    """LEA-007: the live leases of a job end without blame."""
    live = [lease for lease in live_leases(state, job) if lease.id != but]
    return [cancelled(lease, reason, now_ms, now_ms) for lease in live]


def holders(state: Held, parent: TaskId) -> frozenset[ProviderId]:
    """LEA-009: who has a replica of this job in hand or has delivered one, and gets no other."""
    quorum = state.quorums.get(parent)
    if quorum is None:
        return frozenset()
    by_job = state.leases.by_job
    live = (by_job[id_].provider_id for id_ in replica_ids(parent, quorum.m) if id_ in by_job)
    return frozenset((*live, *(vote.provider_id for vote in quorum.votes)))


def why_not_distinct(state: Held, provider_id: ProviderId, job: Job) -> str | None:
    """The filter as it is told (MAT-006)."""
    parent = job.parent or (job.id if job.quorum_m else None)
    return HAS_ANOTHER if parent is not None and provider_id in holders(state, parent) else None


def given_up(state: Leasing, lease: Lease, job: Job, over: JobFailed | JobExpired, now_ms: int) -> tuple[Event, ...]:
    """A job that nobody tries again ends; a replica ends for itself, and its job only where too few are left."""
    if not job.parent:
        return (over,)
    act = JobAct.EXPIRE if isinstance(over, JobExpired) else JobAct.EXHAUST
    ended = ReplicaEnded(job.id, act, over.reason, now_ms)
    parent = whole(state, job)
    if not is_lost(state, parent, state.quorums[parent.id].votes, but=job.id):
        return (ended,)
    return ended, *lost(state, parent, now_ms, but=lease.id)


def is_lost(state: Leasing, parent: Job, votes: Iterable[Vote], but: TaskId) -> bool:
    """LEA-009: whether n can never agree: those that agree most, and all that are still open but this one."""
    jobs = state.queue.jobs
    ids = replica_ids(parent.id, parent.quorum_m)
    still_open = sum(jobs[id_].state in LIVE for id_ in ids if id_ != but)
    most = max(Counter(vote.digest for vote in votes).values(), default=0)
    return most + still_open < parent.quorum_n


def lost(state: Leasing, parent: Job, now_ms: int, but: LeaseId) -> tuple[Event, ...]:
    """The job has failed, and its money goes back; what its replicas still hold ends without blame."""
    return *closed(state, parent, QUORUM_LOST, now_ms, but), JobFailed(parent.id, QUORUM_LOST, now_ms)
