"""Queries about live jobs, their leases and the queue."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Digest, EventNo, Kind, LeaseId, ProviderId, TaskId
from holdfast.core.job.model import Job, JobState
from holdfast.core.job.quorum import Vote
from holdfast.core.lease.decide import lease_held_by
from holdfast.core.lease.model import Lease, is_live
from holdfast.core.queue.pauses import Paused
from holdfast.core.queue.ready_queue import sort_key_of
from holdfast.core.state import State
from holdfast.engine.queries.query import Query, copy_record


class GetLiveJob(Query[Job | None], frozen=True):
    """A job that memory holds: it lives, or its money can still move."""

    task_id: TaskId


class FilterInputsInUse(Query[frozenset[Digest]], frozen=True):
    """JOB-003: which of these inputs a job in memory names."""

    digests: tuple[Digest, ...]


class InputGrant(msgspec.Struct, frozen=True):
    """Which input the holder of a lease may read, or why none."""

    digest: Digest = Digest(b"")
    refusal: Refused | None = None


class CheckInput(Query[InputGrant], frozen=True):
    """JOB-010: only the holder of a live lease that it has acknowledged may read the input of its job."""

    lease_id: LeaseId
    provider_id: ProviderId
    now_ms: int


class JobOwner(msgspec.Struct, frozen=True):
    """Whose a job is, and whether everybody may read it (JOB-010)."""

    caller: AccountId
    is_public: bool


class GetOwnerOfJob(Query[JobOwner | None], frozen=True):
    """Whose job this is, None where memory does not hold it."""

    task_id: TaskId


class GetQuorumVotes(Query[dict[int, Vote]], frozen=True):
    """LEA-009: the votes of a job's replicas that memory holds, by index."""

    parent: TaskId


class AttemptsInMemory(msgspec.Struct, frozen=True):
    """The leases of a job that memory holds, in order; the live one is the last."""

    leases: list[Lease]
    are_all: bool
    """Whether the job had no others: one that was evicted and requeued has earlier ones in the tables."""


class GetAttempts(Query[AttemptsInMemory], frozen=True):
    """The leases of a job, as far as memory holds them."""

    task_id: TaskId


class GetLeasesOfJobs(Query[dict[TaskId, Lease]], frozen=True):
    """The live leases of these jobs; a job without one is left out."""

    task_ids: tuple[TaskId, ...]


class GetLiveLease(Query[Lease | None], frozen=True):
    """A lease that lives."""

    lease_id: LeaseId


class ProviderLeases(msgspec.Struct, frozen=True):
    """What a provider holds as of an event: every later change comes as a later event."""

    leases: list[Lease]
    as_of: EventNo


class ListLeasesOfProvider(Query[ProviderLeases], frozen=True):
    """All live leases of a provider, in the order they were given."""

    provider_id: ProviderId


class LeasedJob(msgspec.Struct, frozen=True):
    """A job and its live lease."""

    job: Job
    lease: Lease


class LeasedJobPage(msgspec.Struct, frozen=True):
    """Some leased jobs in the order of their admission."""

    jobs: list[LeasedJob]
    as_of: EventNo
    next_cursor: EventNo | None


class ListJobsOfProvider(Query[LeasedJobPage | None], frozen=True):
    """A page of the jobs that a provider holds now; None where there is no such provider."""

    provider_id: ProviderId
    cursor: int
    limit: int
    state: JobState | None = None
    kind: Kind | None = None
    caller: str | None = None
    readable_by: AccountId | None = None
    """Only public jobs and those of this account (JOB-010); None: all."""


class CountLiveLeases(Query[int], frozen=True):
    """How many leases live."""


class FilterLiveLeases(Query[frozenset[LeaseId]], frozen=True):
    """Those of these leases that live."""

    lease_ids: frozenset[LeaseId]


class UploadCheck(msgspec.Struct, frozen=True):
    """Whether a provider may upload an output for a lease."""

    is_repeat: bool
    """The lease was completed with this very output."""
    refusal: Refused | None


class CheckUpload(Query[UploadCheck], frozen=True):
    """RCV-001: only the holder of a live lease may upload."""

    lease_id: LeaseId
    provider_id: ProviderId
    digest: Digest
    now_ms: int


class LeaseProof(msgspec.Struct, frozen=True):
    """Who holds a lease, how its result is proved, by which key, and whose it is."""

    provider_id: ProviderId
    method: str
    public_key: bytes
    """The key that its provider signs with now."""
    caller: AccountId


class GetLeaseProofs(Query[dict[LeaseId, LeaseProof]], frozen=True):
    """Of these leases; one that does not live is left out."""

    lease_ids: tuple[LeaseId, ...]


class QueuePosition(msgspec.Struct, frozen=True):
    """Where a job stands in the queue."""

    job: Job | None
    """None where memory does not hold it."""
    lease: Lease | None
    position: int | None
    """How many jobs are before it; None where it is not ready."""
    waiting: int
    """How many jobs of its kind wait."""
    as_of: EventNo


class GetQueuePosition(Query[QueuePosition], frozen=True):
    """Where a job of this kind stands in the queue."""

    task_id: TaskId
    kind: Kind
    now_ms: int


class QueueStatus(msgspec.Struct, frozen=True):
    """The queue as a whole, as of an event."""

    depth: int
    """Jobs that wait or are leased."""
    leases: int
    leases_by_kind: dict[str, int]
    paused: dict[str, Paused]
    waiting: dict[str, int]
    """Jobs that wait, by kind."""
    oldest_ms: dict[str, int]
    """When the oldest ready job of a kind was admitted."""
    retrying: int
    """Jobs that wait for a retry, or for their own time (JOB-013)."""
    as_of: EventNo


class GetQueueStatus(Query[QueueStatus], frozen=True):
    """How deep the queue is and what is leased."""


def _get_live_job(state: State, query: GetLiveJob) -> Job | None:
    return copy_record(state.queue.jobs.peek(query.task_id))


def _filter_inputs_in_use(state: State, query: FilterInputsInUse) -> frozenset[Digest]:
    jobs, schedules = state.queue.input_uses, state.schedules.input_uses
    return frozenset(digest for digest in query.digests if digest in jobs or digest in schedules)


def _check_input(state: State, query: CheckInput) -> InputGrant:
    lease = state.leases.by_id.get(query.lease_id)
    if lease is None or lease.provider_id != query.provider_id or not is_live(lease, query.now_ms):
        refusal = Refused("LEA-005", f"no live lease {query.lease_id.hex()} of this provider", name="LeaseLost")
        return InputGrant(refusal=refusal)
    if lease.acked_ms is None:
        hint = "acknowledge the lease first"
        return InputGrant(refusal=Refused("JOB-010", "the input follows the ACK", hint, "Forbidden"))
    job = state.queue.jobs.peek(lease.job_id)
    named = state.queue.jobs.peek(job.parent) if job is not None and job.parent else job
    if named is None or not named.input_digest:
        return InputGrant(refusal=Refused("JOB-003", "this job has no input", name="NotFound"))
    return InputGrant(named.input_digest)


def _get_owner_of_job(state: State, query: GetOwnerOfJob) -> JobOwner | None:
    job = state.queue.jobs.peek(query.task_id)
    return JobOwner(job.caller, bool(job.is_public)) if job is not None else None


def _get_quorum_votes(state: State, query: GetQuorumVotes) -> dict[int, Vote]:
    quorum = state.quorums.get(query.parent)
    return {vote.index: vote for vote in quorum.votes} if quorum is not None else {}


def _get_attempts(state: State, query: GetAttempts) -> AttemptsInMemory:
    id_, live = query.task_id, state.leases.by_job.get(query.task_id)
    leases = [*state.attempts.get(id_, ()), *([live] if live is not None else [])]
    job = state.queue.jobs.peek(id_)
    return AttemptsInMemory(
        [msgspec.structs.replace(lease) for lease in leases], job is not None and len(leases) == job.attempts
    )


def _get_leases_of_jobs(state: State, query: GetLeasesOfJobs) -> dict[TaskId, Lease]:
    leases = state.leases.by_job
    return {id_: msgspec.structs.replace(leases[id_]) for id_ in query.task_ids if id_ in leases}


def _get_live_lease(state: State, query: GetLiveLease) -> Lease | None:
    return copy_record(state.leases.by_id.get(query.lease_id))


def _list_leases_of_provider(state: State, query: ListLeasesOfProvider) -> ProviderLeases:
    leases = [msgspec.structs.replace(lease) for lease in state.leases.of(query.provider_id)]
    return ProviderLeases(leases, state.last_event)


def _list_jobs_of_provider(state: State, query: ListJobsOfProvider) -> LeasedJobPage | None:
    if query.provider_id not in state.providers:
        return None
    held = [(state.queue.jobs[lease.job_id], lease) for lease in state.leases.of(query.provider_id)]
    matching = [(job, lease) for job, lease in held if job.event > query.cursor and _is_match(job, query)]
    matching.sort(key=lambda pair: pair[0].event)
    page = matching[: query.limit]
    return LeasedJobPage(
        [LeasedJob(msgspec.structs.replace(job), msgspec.structs.replace(lease)) for job, lease in page],
        state.last_event,
        page[-1][0].event if len(matching) > query.limit else None,
    )


def _is_match(job: Job, query: ListJobsOfProvider) -> bool:
    return (
        (query.state is None or job.state is query.state)
        and (query.kind is None or job.kind is query.kind)
        and (query.caller is None or job.caller == query.caller)
        and (query.readable_by is None or bool(job.is_public) or job.caller == query.readable_by)
    )


def _count_live_leases(state: State, _: CountLiveLeases) -> int:
    return len(state.leases.by_id)


def _filter_live_leases(state: State, query: FilterLiveLeases) -> frozenset[LeaseId]:
    return frozenset(id_ for id_ in query.lease_ids if id_ in state.leases.by_id)


def _check_upload(state: State, query: CheckUpload) -> UploadCheck:
    lease = state.leases.by_id.get(query.lease_id)
    is_repeat = lease is not None and (lease.provider_id, lease.submitted) == (query.provider_id, query.digest)
    held = lease_held_by(state, query.lease_id, query.provider_id, query.now_ms)
    return UploadCheck(is_repeat, held if isinstance(held, Refused) and not is_repeat else None)


def _get_lease_proofs(state: State, query: GetLeaseProofs) -> dict[LeaseId, LeaseProof]:
    found = {id_: lease for id_ in query.lease_ids if (lease := state.leases.by_id.get(id_)) is not None}
    return {id_: _lease_proof(state, lease) for id_, lease in found.items()}


def _lease_proof(state: State, lease: Lease) -> LeaseProof:
    job = state.queue.jobs[lease.job_id]
    return LeaseProof(lease.provider_id, job.proof, state.providers[lease.provider_id].signing_key, job.caller)


def _get_queue_position(state: State, query: GetQueuePosition) -> QueuePosition:
    job = state.queue.jobs.peek(query.task_id)
    return QueuePosition(
        copy_record(job),
        copy_record(state.leases.by_job.get(query.task_id)),
        _position(state, job, query.now_ms) if job is not None else None,
        state.queue.ready_queue.waiting.get(query.kind, 0),
        state.last_event,
    )


def _position(state: State, job: Job, now_ms: int) -> int | None:
    if job.state is not JobState.QUEUED or job.quorum_m or job.not_before_ms > now_ms:
        return None
    return state.queue.ready_queue.rank(sort_key_of(job))


def queue_status(state: State) -> QueueStatus:
    leases, ready = state.leases.by_job, state.queue.ready_queue
    return QueueStatus(
        depth=state.queue.depth,
        leases=len(leases),
        leases_by_kind=dict(Counter(state.queue.jobs[id_].kind.value for id_ in leases)),
        paused=dict(state.paused),
        waiting={kind.value: ready.waiting.get(kind, 0) for kind in Kind},
        oldest_ms={kind.value: at_ms for kind, at_ms in ready.oldest_ms().items()},
        retrying=sum(map(len, ready.delayed.buckets.values())),
        as_of=state.last_event,
    )


def _get_queue_status(state: State, _: GetQueueStatus) -> QueueStatus:
    return queue_status(state)


QUERIES: Final = {
    GetLiveJob: _get_live_job,
    GetOwnerOfJob: _get_owner_of_job,
    FilterInputsInUse: _filter_inputs_in_use,
    CheckInput: _check_input,
    GetQuorumVotes: _get_quorum_votes,
    GetAttempts: _get_attempts,
    GetLeasesOfJobs: _get_leases_of_jobs,
    GetLiveLease: _get_live_lease,
    ListLeasesOfProvider: _list_leases_of_provider,
    ListJobsOfProvider: _list_jobs_of_provider,
    CountLiveLeases: _count_live_leases,
    FilterLiveLeases: _filter_live_leases,
    CheckUpload: _check_upload,
    GetLeaseProofs: _get_lease_proofs,
    GetQueuePosition: _get_queue_position,
    GetQueueStatus: _get_queue_status,
}
