"""Methods of the queue's view (RPC-001): a job's position and lease, the jobs of a provider, balances."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.node_access import READERS, NodeAccess, Principal, RpcCall, RpcMethod, why_not_own
from holdfast.api.rpc.methods.jobs import JobParams
from holdfast.api.rpc.paging import filter_of, why_not_limit
from holdfast.api.visibility import View, show_leases, view_of, why_not_list_caller
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, EventNo, Height, Kind, LeaseId, ProviderId, TaskId, Tier
from holdfast.core.job.model import Job, JobState, expires_at_ms
from holdfast.core.key.model import Role
from holdfast.core.lease.model import Lease
from holdfast.engine import queries
from holdfast.engine.queries.accounts import GetBalance
from holdfast.engine.queries.jobs import GetLeasesOfJobs, GetQueuePosition, ListJobsOfProvider
from holdfast.engine.queries.providers import GetProvider


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
    """It waits until then: for its own time (JOB-013), or for a retry."""
    reason: str
    """Why it ended, or what failed last."""
    parent: TaskId | None
    """Of a replica: its job."""
    provider_id: ProviderId | None
    lease_id: LeaseId | None
    deadline_ms: int | None
    event: EventNo
    """Of its admission; lists use it as cursor."""
    is_public: bool


class PublicQueuedJob(msgspec.Struct, frozen=True):
    """What everybody sees of a private job (JOB-010)."""

    task_id: TaskId
    kind: Kind
    state: JobState
    height: Height
    expires_height: Height
    is_public: bool = False


class QueuedJobs(msgspec.Struct, frozen=True):
    """Some jobs, as of an event, and where the next page begins."""

    jobs: list[QueuedJob | PublicQueuedJob]
    as_of: EventNo
    next_cursor: int | None


class QueuedJobView(msgspec.Struct, frozen=True):
    """One job as the queue sees it, with all its leases and their times. Others see no more of a private job than
    `job`, `waiting` and `expires_height`."""

    job: QueuedJob | PublicQueuedJob
    waiting: int
    """How many jobs of its kind wait."""
    expires_height: Height
    as_of: EventNo
    position: int | None = None
    """How many jobs are before it; None where it is not ready."""
    leases: list[Lease] = []
    quorum: tuple[int, int] | None = None
    """N and M, where N of M replicas must return the same output."""


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
    """Of the provider that was named, else of all providers of the account."""
    unstaking: int
    as_of: EventNo


async def _list(access: NodeAccess, call: RpcCall, params: ListQueuedJobsParams) -> QueuedJobs | Refused:
    if refusal := why_not_limit(params.limit) or why_not_list_caller(call.principal, params.caller):
        return refusal
    if params.provider_id:
        return await _jobs_of_provider(access, call.principal, params)
    match = filter_of({"state": params.state, "kind": params.kind, "caller": params.caller})
    page = await queries.page(access.source, "job", match, params.cursor, params.limit)
    leases = await access.source.query_durable(GetLeasesOfJobs(tuple(job.id for job in page.rows)))
    # rows lag: memory knows the lease of now
    jobs = [_queued_job(call.principal, job, leases.get(job.id)) for job in page.rows]
    assert page.next_after is None or isinstance(page.next_after, int)
    return QueuedJobs(jobs, page.as_of, page.next_after)


async def _jobs_of_provider(
    access: NodeAccess, principal: Principal, params: ListQueuedJobsParams
) -> QueuedJobs | Refused:
    """From memory, which has all live leases by provider. Which private jobs a provider holds is not public."""
    provider = await access.source.query_durable(GetProvider(params.provider_id))
    if provider is None:
        return Refused("PRV-001", f"no provider {params.provider_id.hex()}", name="NotFound")
    sees_all = principal.role in READERS or principal.account == provider.account
    page = await access.source.query_durable(
        ListJobsOfProvider(
            provider_id=params.provider_id,
            cursor=params.cursor,
            limit=params.limit,
            state=params.state,
            kind=params.kind,
            caller=params.caller,
            readable_by=None if sees_all else principal.account or AccountId(""),
        )
    )
    assert page is not None
    jobs = [_queued_job(principal, each.job, each.lease) for each in page.jobs]
    return QueuedJobs(jobs, page.as_of, page.next_cursor)


def _queued_job(principal: Principal, job: Job, lease: Lease | None) -> QueuedJob | PublicQueuedJob:
    if view_of(principal, job) is View.CHAIN:
        return PublicQueuedJob(job.id, job.kind, job.state, job.height, job.expires_height)
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
        is_public=bool(job.is_public),
    )


async def _get(access: NodeAccess, call: RpcCall, params: JobParams) -> QueuedJobView | Refused:
    source = access.source
    now_ms, stored = source.replication_status().tip.time_ms, await queries.job(source, params.task_id)
    if stored is None:
        return Refused("JOB-007", f"no job {params.task_id.hex()}", name="NotFound")
    place = await source.query_durable(GetQueuePosition(stored.id, stored.kind, now_ms))
    job, view = place.job or stored, view_of(call.principal, stored)
    known = QueuedJobView(
        job=_queued_job(call.principal, job, place.lease),
        waiting=place.waiting,
        expires_height=job.expires_height,
        as_of=place.as_of,
    )
    if view is View.CHAIN:
        return known
    return msgspec.structs.replace(
        known,
        position=place.position,
        leases=show_leases(view, await queries.attempts(source, stored.id)),
        quorum=(job.quorum_n, job.quorum_m) if job.quorum_m else None,
    )


async def _balance(access: NodeAccess, call: RpcCall, params: BalanceParams) -> Balance | Refused:
    balance = await access.source.query_durable(
        GetBalance(params.account or call.principal.account, params.provider_id)
    )
    owner, account = balance.owner, balance.account
    if params.provider_id and owner is None:
        return Refused("PRV-001", f"no provider {params.provider_id.hex()}", name="NotFound")
    if owner is None or (params.provider_id and params.account is not None):
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
        stake=balance.stake,
        unstaking=balance.unstaking,
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
