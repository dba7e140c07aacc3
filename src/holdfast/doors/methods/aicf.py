"""The queue's view at the doors (RPC-001): where a job stands and who holds it, what a provider holds, balances."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.job.record import Job, JobState, ends_ms
from holdfast.core.key import Role
from holdfast.core.lease.record import Lease
from holdfast.core.queue.line import place_of
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import AccountId, EventNo, Height, Kind, LeaseId, ProviderId, TaskId, Tier
from holdfast.doors.desk import Desk, Method, Visitor
from holdfast.doors.methods.jobs import OneJob, expires_height
from holdfast.doors.pages import why_not_limit
from holdfast.engine import read

OWN: Final = frozenset({Role.REQUESTER, Role.PROVIDER})
"""Who sees its own money alone."""


class ManyQueued(msgspec.Struct, frozen=True):
    """A page of jobs in the order of their admission, filtered where asked; `cursor` is the last page's."""

    state: JobState | None = None
    kind: Kind | None = None
    caller: str | None = None
    provider_id: ProviderId = ProviderId(b"")
    """Only those that this provider holds now."""
    limit: int = 100
    cursor: int = 0


class QueuedJob(msgspec.Struct, frozen=True):
    """A job as the queue sees it, and who holds it where somebody does."""

    task_id: TaskId
    kind: Kind
    state: JobState
    caller: AccountId
    tier: Tier
    max_fee: int
    units: int
    priority: int
    enqueue_ms: int
    ends_ms: int
    """When its time to live is over."""
    attempts: int
    """Leases so far."""
    failures: int
    not_before_ms: int
    """A retry waits until then."""
    reason: str
    """Why it ended, or what failed last."""
    parent: TaskId | None
    """Of a replica: the job that it is one of."""
    provider_id: ProviderId | None
    lease_id: LeaseId | None
    deadline_ms: int | None
    event: EventNo
    """Of its admission: the cursor of lists."""


class QueuedJobs(msgspec.Struct, frozen=True):
    """Some jobs, as of an event, and where the next page begins."""

    jobs: list[QueuedJob]
    as_of: EventNo
    next_cursor: int | None


class QueuedJobShown(msgspec.Struct, frozen=True):
    """One job as the queue sees it, with every lease and its marks."""

    job: QueuedJob
    position: int | None
    """How many stand before it; None where it does not stand in line now."""
    waiting: int
    """How many wait, of its kind."""
    leases: list[Lease]
    expires_height: Height
    quorum: tuple[int, int] | None
    """So many of so many must agree, where it has replicas."""
    as_of: EventNo


class WhoseBalance(msgspec.Struct, frozen=True):
    """An account, or a provider, whose account is meant; neither is the key's own."""

    account: AccountId | None = None
    provider_id: ProviderId = ProviderId(b"")


class Balance(msgspec.Struct, frozen=True):
    """What an account has: to spend, reserved for jobs, and waiting for its block to be final."""

    account: AccountId
    available: int
    held: int
    pending: int
    stake: int
    """Of the provider that was asked for."""
    unstaking: int
    as_of: EventNo


async def _list(desk: Desk, _: Visitor, asked: ManyQueued) -> QueuedJobs | Refused:
    if no := why_not_limit(asked.limit):
        return no
    if asked.provider_id:
        return await desk.source.ask(lambda state: _held(state, asked))
    told = {"state": asked.state, "kind": asked.kind, "caller": asked.caller}
    match = {name: str(value) for name, value in told.items() if value is not None}
    found = await read.page(desk.source, "job", match, asked.cursor, asked.limit)
    jobs = await desk.source.ask(lambda state: [_seen(state, job) for job in found.rows])
    assert found.next_after is None or isinstance(found.next_after, int)
    return QueuedJobs(jobs, found.as_of, found.next_after)


def _held(state: State, asked: ManyQueued) -> QueuedJobs | Refused:
    """From memory, which has every live lease, and by provider."""
    if asked.provider_id not in state.providers:
        return Refused("PRV-001", f"no provider {asked.provider_id.hex()}", name="NotFound")
    held = [state.queue.jobs[lease.job_id] for lease in state.leases.of(asked.provider_id)]
    fit = sorted((job for job in held if job.event > asked.cursor and _is_asked(job, asked)), key=_by_event)
    page = fit[: asked.limit]
    return QueuedJobs(
        [_seen(state, job) for job in page],
        state.last_event,
        page[-1].event if len(fit) > asked.limit else None,
    )


def _by_event(job: Job) -> int:
    return job.event


def _is_asked(job: Job, asked: ManyQueued) -> bool:
    return (
        (asked.state is None or job.state is asked.state)
        and (asked.kind is None or job.kind is asked.kind)
        and (asked.caller is None or job.caller == asked.caller)
    )


def _seen(state: State, job: Job) -> QueuedJob:
    """Rows lag a moment, so that somebody may hold a job that the row does not know to be held yet."""
    lease = state.leases.by_job.get(job.id)
    asked = (job.id, job.kind, job.state, job.caller, job.tier, job.max_fee, job.units, job.priority)
    life = (job.enqueue_ms, ends_ms(job), job.attempts, job.failures, job.not_before_ms, job.reason)
    return QueuedJob(
        *asked,
        *life,
        job.parent or None,
        None if lease is None else lease.provider_id,
        None if lease is None else lease.id,
        None if lease is None else lease.t_deadline_ms,
        job.event,
    )


async def _get(desk: Desk, _: Visitor, asked: OneJob) -> QueuedJobShown | Refused:
    source = desk.source
    now_ms, found = source.standing().tip.time_ms, await read.job(source, asked.task_id)
    if found is None:
        return Refused("JOB-007", f"no job {asked.task_id.hex()}", name="NotFound")
    job, leases = found, await read.attempts(source, found.id)

    def now(state: State) -> QueuedJobShown:
        fresh = state.queue.jobs.get(job.id) or job
        quorum = (fresh.quorum_n, fresh.quorum_m) if fresh.quorum_m else None
        waiting = state.queue.line.waiting.get(fresh.kind, 0)
        told = (leases, expires_height(fresh, source.policy), quorum, state.last_event)
        return QueuedJobShown(_seen(state, fresh), _position(state, fresh, now_ms), waiting, *told)

    return await source.ask(now)


def _position(state: State, job: Job, now_ms: int) -> int | None:
    if job.state is not JobState.QUEUED or job.quorum_m or job.not_before_ms > now_ms:
        return None
    return state.queue.line.before(place_of(job))


async def _balance(desk: Desk, visitor: Visitor, asked: WhoseBalance) -> Balance | Refused:
    def now(state: State) -> Balance | Refused:
        provider = state.providers.get(asked.provider_id)
        if asked.provider_id and provider is None:
            return Refused("PRV-001", f"no provider {asked.provider_id.hex()}", name="NotFound")
        whose = provider.account if provider is not None else asked.account or visitor.account
        if whose is None or (provider is not None and asked.account is not None):
            return Refused("ESC-001", "params: account or provider_id: name one of them", name="InvalidParams")
        if visitor.role in OWN and visitor.account != whose:
            return Refused("SEC-001", f"this key is {visitor.account}'s, not {whose}'s", name="Forbidden")
        account = state.ledger.accounts.get(whose)
        if account is None:
            return Refused("ESC-001", f"nobody has paid {whose!r} yet", name="NotFound")
        stake = (provider.stake, provider.unstaking) if provider is not None else (0, 0)
        return Balance(whose, account.available, account.held, account.pending, *stake, state.last_event)

    return await desk.source.ask(now)


METHODS: Final[dict[str, Method]] = {
    "aicf.listJobs": Method("Jobs as the queue sees them, by state, kind or provider.", ManyQueued, QueuedJobs, _list),
    "aicf.getJob": Method("One job as the queue sees it: its place, its leases.", OneJob, QueuedJobShown, _get),
    "aicf.getBalance": Method("What an account has.", WhoseBalance, Balance, _balance, frozenset(Role)),
}
