"""Methods of the queue's view (RPC-001): a job's position and lease, the jobs of a provider, balances."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.node_access import NodeAccess, RpcCall, RpcMethod, why_not_own
from holdfast.api.rpc.methods.jobs import JobParams
from holdfast.api.rpc.paging import filter_of, why_not_limit
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, EventNo, Height, Kind, LeaseId, ProviderId, TaskId, Tier
from holdfast.core.job.model import Job, JobState, expires_at_ms
from holdfast.core.key.model import Role
from holdfast.core.lease.model import Lease
from holdfast.engine import queries
from holdfast.engine.queries.accounts import GetBalance
from holdfast.engine.queries.jobs import GetLeasesOfJobs, GetQueuePosition, ListJobsOfProvider


class ListQueuedJobsParams(msgspec.Struct, frozen=True):
    """A page of jobs in the order of their admission, filtered where given; `cursor` is the last page's."""

    state: JobState | None = None
    kind: Kind | None = None
    caller: str | None = None
    provider_id: ProviderId = ProviderId(b"")
    """Only those that this provider holds now."""
    limit: int = 100
    cursor: int = 0


class QueuedJob(msgspec.Struct, frozen=True):
    """A job as the queue sees it, and its lease where it has one."""

    task_id: TaskId
    kind: Kind
    state: JobState
    caller: AccountId
    tier: Tier
    max_fee: int
    units: int
    priority: int
    enqueue_ms: int
    expires_at_ms: int
    """When its time to live ends."""
    attempts: int
    """Leases so far."""
    failures: int
    not_before_ms: int
    """A retry waits until then."""
    reason: str
    """Why it ended, or what failed last."""
    parent: TaskId | None
    """Of a replica: its job."""
    provider_id: ProviderId | None
    lease_id: LeaseId | None
    deadline_ms: int | None
    event: EventNo
    """Of its admission; lists use it as cursor."""


class QueuedJobs(msgspec.Struct, frozen=True):
    """Some jobs, as of an event, and where the next page begins."""

    jobs: list[QueuedJob]
    as_of: EventNo
    next_cursor: int | None


class QueuedJobView(msgspec.Struct, frozen=True):
    """One job as the queue sees it, with all its leases and their times."""

    job: QueuedJob
    position: int | None
    """How many jobs are before it; None where it is not ready."""
    waiting: int
    """How many jobs of its kind wait."""
    leases: list[Lease]
    expires_height: Height
    quorum: tuple[int, int] | None
    """N and M, where N of M replicas must return the same output."""
    as_of: EventNo


class BalanceParams(msgspec.Struct, frozen=True):
    """An account, or a provider, whose account is meant; without either, the key's own account."""

    account: AccountId | None = None
    provider_id: ProviderId = ProviderId(b"")


class Balance(msgspec.Struct, frozen=True):
    """The money of an account: available, reserved for jobs, and waiting for its block to be final."""

    account: AccountId
    available: int
    held: int
    pending: int
    stake: int
    """Of the provider, where one was named."""
    unstaking: int
    as_of: EventNo


async def _list(access: NodeAccess, _: RpcCall, params: ListQueuedJobsParams) -> QueuedJobs | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    if params.provider_id:
        return await _jobs_of_provider(access, params)
    match = filter_of({"state": params.state, "kind": params.kind, "caller": params.caller})
    page = await queries.page(access.source, "job", match, params.cursor, params.limit)
    leases = await access.source.query_durable(GetLeasesOfJobs(tuple(job.id for job in page.rows)))
    jobs = [_queued_job(job, leases.get(job.id)) for job in page.rows]  # rows lag: memory knows the lease of now
    assert page.next_after is None or isinstance(page.next_after, int)
    return QueuedJobs(jobs, page.as_of, page.next_after)


async def _jobs_of_provider(access: NodeAccess, params: ListQueuedJobsParams) -> QueuedJobs | Refused:
    """From memory, which has all live leases by provider."""
    page = await access.source.query_durable(
        ListJobsOfProvider(
            provider_id=params.provider_id,
            cursor=params.cursor,
            limit=params.limit,
            state=params.state,
            kind=params.kind,
            caller=params.caller,
        )
    )
    if page is None:
        return Refused("PRV-001", f"no provider {params.provider_id.hex()}", name="NotFound")
    return QueuedJobs([_queued_job(each.job, each.lease) for each in page.jobs], page.as_of, page.next_cursor)


def _queued_job(job: Job, lease: Lease | None) -> QueuedJob:
    return QueuedJob(
        task_id=job.id,
        kind=job.kind,
        state=job.state,
        caller=job.caller,
        tier=job.tier,
        max_fee=job.max_fee,
        units=job.units,
        priority=job.priority,
        enqueue_ms=job.enqueue_ms,
        expires_at_ms=expires_at_ms(job),
        attempts=job.attempts,
        failures=job.failures,
        not_before_ms=job.not_before_ms,
        reason=job.reason,
        parent=job.parent or None,
        provider_id=None if lease is None else lease.provider_id,
        lease_id=None if lease is None else lease.id,
        deadline_ms=None if lease is None else lease.t_deadline_ms,
        event=job.event,
    )


async def _get(access: NodeAccess, _: RpcCall, params: JobParams) -> QueuedJobView | Refused:
    source = access.source
    now_ms, stored = source.replication_status().tip.time_ms, await queries.job(source, params.task_id)
    if stored is None:
        return Refused("JOB-007", f"no job {params.task_id.hex()}", name="NotFound")
    leases = await queries.attempts(source, stored.id)
    place = await source.query_durable(GetQueuePosition(stored.id, stored.kind, now_ms))
    job = place.job or stored
    return QueuedJobView(
        job=_queued_job(job, place.lease),
        position=place.position,
        waiting=place.waiting,
        leases=leases,
        expires_height=job.expires_height,
        quorum=(job.quorum_n, job.quorum_m) if job.quorum_m else None,
        as_of=place.as_of,
    )


async def _balance(access: NodeAccess, call: RpcCall, params: BalanceParams) -> Balance | Refused:
    balance = await access.source.query_durable(
        GetBalance(params.account or call.principal.account, params.provider_id)
    )
    owner, account, provider = balance.owner, balance.account, balance.provider
    if params.provider_id and provider is None:
        return Refused("PRV-001", f"no provider {params.provider_id.hex()}", name="NotFound")
    if owner is None or (provider is not None and params.account is not None):
        return Refused("ESC-001", "params: account or provider_id: name one of them", name="InvalidParams")
    if refusal := why_not_own(call.principal, owner):
        return refusal
    if account is None:
        return Refused("ESC-001", f"no account {owner!r}: it was never paid", name="NotFound")
    return Balance(
        account=owner,
        available=account.available,
        held=account.held,
        pending=account.pending,
        stake=provider.stake if provider is not None else 0,
        unstaking=provider.unstaking if provider is not None else 0,
        as_of=balance.as_of,
    )


METHODS: Final[dict[str, RpcMethod]] = {
    "aicf.listJobs": RpcMethod(
        "Jobs as the queue sees them, by state, kind or provider.", ListQueuedJobsParams, QueuedJobs, _list
    ),
    "aicf.getJob": RpcMethod(
        "One job as the queue sees it: its position and its leases.", JobParams, QueuedJobView, _get
    ),
    "aicf.getBalance": RpcMethod("The money of an account.", BalanceParams, Balance, _balance, frozenset(Role)),
}
