"""What the leases of replicas mean for their job (LEA-009): who holds one, when all of them end, and when too few
replicas are left to agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from holdfast.core.base.event import Event
from holdfast.core.base.values import LeaseId, ProviderId, TaskId
from holdfast.core.job.model import LIVE_STATES, Job, JobTransition
from holdfast.core.job.quorum import Vote, replica_ids
from holdfast.core.lease.messages import close_without_penalty
from holdfast.core.lease.model import HasLeases, Lease
from holdfast.core.queue.messages import JobExpired, JobFailed
from holdfast.core.queue.replicas import ReplicaEnded

QUORUM_LOST: Final = "QUORUM_LOST"
HAS_ANOTHER: Final = "has another replica of this job"


def parent_job(state: HasLeases, job: Job) -> Job:
    """The requested job: of a replica its parent, else the job itself."""
    return state.queue.jobs[job.parent] if job.parent else job


def live_leases(state: HasLeases, job: Job) -> list[Lease]:
    """All live leases of a job: one at most, or one for each replica (LEA-002)."""
    ids = replica_ids(job.id, job.quorum_m) if job.quorum_m else (job.id,)
    return [lease for id_ in ids if (lease := state.leases.by_job.get(id_)) is not None]


def close_leases(state: HasLeases, job: Job, reason: str, now_ms: int, excluding: LeaseId | None = None) -> list[Event]:
    """LEA-007: the live leases of a job end without penalty."""
    live = [lease for lease in live_leases(state, job) if lease.id != excluding]
    return [close_without_penalty(lease, reason, now_ms) for lease in live]


def holders(state: HasLeases, parent: TaskId) -> frozenset[ProviderId]:
    """LEA-009: the providers that hold a replica of this job or have delivered one; they get no other."""
    quorum = state.quorums.get(parent)
    if quorum is None:
        return frozenset()
    by_job = state.leases.by_job
    live = (by_job[id_].provider_id for id_ in replica_ids(parent, quorum.m) if id_ in by_job)
    return frozenset((*live, *(vote.provider_id for vote in quorum.votes)))


def why_not_distinct(state: HasLeases, provider_id: ProviderId, job: Job) -> str | None:
    """Why this provider is not eligible for another replica, None where it is (MAT-006)."""
    parent = job.parent or (job.id if job.quorum_m else None)
    return HAS_ANOTHER if parent is not None and provider_id in holders(state, parent) else None


def give_up_events(
    state: HasLeases, lease: Lease, job: Job, over: JobFailed | JobExpired, now_ms: int
) -> tuple[Event, ...]:
    """A job without further attempts ends. A replica ends alone, and its job only where too few replicas are left."""
    if not job.parent:
        return (over,)
    transition = JobTransition.EXPIRE if isinstance(over, JobExpired) else JobTransition.EXHAUST
    ended = ReplicaEnded(job.id, transition, over.reason, now_ms)
    parent = parent_job(state, job)
    if not is_quorum_unreachable(state, parent, state.quorums[parent.id].votes, excluding=job.id):
        return (ended,)
    return ended, *fail_quorum(state, parent, now_ms, excluding=lease.id)


def is_quorum_unreachable(state: HasLeases, parent: Job, votes: Iterable[Vote], excluding: TaskId) -> bool:
    """LEA-009: whether n can never agree, even if all open replicas but this one join the largest group of votes."""
    jobs = state.queue.jobs
    ids = replica_ids(parent.id, parent.quorum_m)
    still_open = sum(jobs[id_].state in LIVE_STATES for id_ in ids if id_ != excluding)
    most = max(Counter(vote.digest for vote in votes).values(), default=0)
    return most + still_open < parent.quorum_n


def fail_quorum(state: HasLeases, parent: Job, now_ms: int, excluding: LeaseId) -> tuple[Event, ...]:
    """The job fails and its money is refunded; live leases of its replicas end without penalty."""
    return *close_leases(state, parent, QUORUM_LOST, now_ms, excluding), JobFailed(parent.id, QUORUM_LOST, now_ms)
