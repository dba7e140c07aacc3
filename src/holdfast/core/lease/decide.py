"""Whether a lease is acknowledged, renewed, declined, failed, expired or revoked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Answer, Decided, Event
from holdfast.core.base.values import LeaseId, ProviderId, TaskId
from holdfast.core.job.model import LIVE_STATES, Job
from holdfast.core.lease import input_claims, quorum
from holdfast.core.lease.messages import (
    AckLease,
    DeclineLease,
    ExpireDue,
    FailLease,
    LeaseAcked,
    LeaseClosed,
    LeaseRenewed,
    RenewLease,
    close_without_penalty,
)
from holdfast.core.lease.model import HasLeases, Lease, LeaseStatus, has_lapsed, is_live, lease_ms
from holdfast.core.provider import health
from holdfast.core.provider.model import Provider, ProviderStatus
from holdfast.core.queue import retry
from holdfast.core.queue.messages import JobExpired, JobFailed

ATTEMPTS_EXHAUSTED: Final = "ATTEMPTS_EXHAUSTED"
BUSY: Final = "BUSY"
BUSY_MS: Final = 1_000
"""An executor that is full has a free place in a moment, unlike a provider that does not want the work."""
REVOKE_REASONS: Final = {
    ProviderStatus.JAILED: "PROVIDER_JAILED",
    ProviderStatus.SUSPENDED: "PROVIDER_SUSPENDED",
    ProviderStatus.RETIRED: "PROVIDER_RETIRED",
}
"""The statuses in which a provider may not hold leases, each with the reason on the closed lease."""


def ack(state: HasLeases, commands: Sequence[AckLease], now_ms: int) -> list[Answer]:
    """LEA-003: an ACK in time is accepted; a second one is a repeat."""
    answers, acked = list[Answer](), set[LeaseId]()
    for command in commands:
        lease = lease_held_by(state, command.id, command.provider_id, now_ms)
        if isinstance(lease, Refused):
            answers.append(lease)
        elif lease.acked_ms is not None or lease.id in acked:
            answers.append(Decided((), repeat_of=lease.event))
        else:
            answers.append(Decided((LeaseAcked(lease.id, now_ms),)))
            acked.add(lease.id)
    return answers


def renew(state: HasLeases, command: RenewLease, now_ms: int) -> Decided | Refused:
    """LEA-004: while the lease is live, both deadlines move by a part of T, a bounded number of times."""
    lease = lease_held_by(state, command.id, command.provider_id, now_ms)
    if isinstance(lease, Refused):
        return lease
    policy = state.policy.lease
    if command.renewal == lease.renewals:
        return Decided((), repeat_of=lease.event)
    if command.renewal != lease.renewals + 1:
        return Refused("LEA-004", f"renewal {command.renewal} after {lease.renewals}", name="InvalidParams")
    job = state.queue.jobs[lease.job_id]
    is_long = lease.t_deadline_ms < lease.t_start_ms + job.run_ms_max
    if lease.renewals >= policy.renewals_max and not is_long:
        return Refused(
            "LEA-004", f"lease {lease.id.hex()} was renewed {lease.renewals} times", "complete it or fail it"
        )
    more = lease_ms(job.kind, policy) * policy.renew_extends_per_mille // 1_000
    is_late = now_ms >= lease.renew_by_ms
    return Decided(
        (LeaseRenewed(lease.id, lease.t_deadline_ms + more, lease.renew_by_ms + more, is_late, lease.job_id),)
    )


def decline(state: HasLeases, command: DeclineLease, now_ms: int) -> Decided | Refused:
    """LEA-006: not a failure; the job waits again at once, and this provider is skipped for its class for a while."""
    if not command.reason.isprintable():
        return Refused("LEA-006", "reason: printable characters", name="InvalidParams")
    lease = lease_held_by(state, command.id, command.provider_id, now_ms)
    if isinstance(lease, Refused):
        return lease
    cooldown_ms = BUSY_MS if command.reason.startswith(BUSY) else state.policy.lease.decline_cooldown_ms
    denied_ms = _until_ms(now_ms, min(cooldown_ms, state.policy.lease.decline_cooldown_ms))
    closed = close_without_penalty(lease, command.reason[:64], now_ms)
    return Decided((replace(closed, denied_until_ms=denied_ms),))


def fail(state: HasLeases, command: FailLease, now_ms: int) -> Decided | Refused:
    """RTY-001: PROVIDER_FAIL counts as a failure; an invalid input does not (JOB-012), unless the node contradicts."""
    lease = lease_held_by(state, command.id, command.provider_id, now_ms)
    if isinstance(lease, Refused):
        return lease
    detail = input_claims.clean_detail(command.reason)
    if input_claims.is_claim(command.reason) and command.is_input_valid is not True:
        is_confirmed = command.is_input_valid is False
        return Decided(input_claims.claim_events(state, lease, detail, now_ms, is_confirmed=is_confirmed))
    return Decided(failure_events(state, lease, LeaseStatus.CANCELLED, "PROVIDER_FAIL", now_ms, detail))


def lease_held_by(state: HasLeases, id_: LeaseId, provider_id: ProviderId, now_ms: int) -> Lease | Refused:
    """The live lease, if this provider holds it and has not submitted a result yet."""
    lease = state.leases.by_id.get(id_)
    if lease is None or has_lapsed(lease, now_ms):
        return Refused(
            "LEA-005", f"lease {id_.hex()} is over", "its job was assigned to others or has ended", "LeaseLost"
        )
    if lease.provider_id != provider_id:
        return Refused("PRV-003", f"lease {id_.hex()} is another provider's", name="Forbidden")
    if lease.submitted is not None:
        return Refused("RCV-001", f"lease {id_.hex()} waits for the verdict on its submission", "wait for that verdict")
    return why_not_held(state, lease, now_ms) or lease


def why_not_held(state: HasLeases, lease: Lease, now_ms: int) -> Refused | None:
    """LEA-003, TTL-001: a lease is over at its deadline, even before `ExpireDue` has ended it."""
    if lease.acked_ms is None and now_ms >= lease.ack_by_ms:
        return Refused("LEA-003", f"lease {lease.id.hex()}: the time for its ACK is over", name="LeaseLost")
    if why := why_must_expire(state, state.queue.jobs[lease.job_id], now_ms):
        message = f"lease {lease.id.hex()}: its job has expired ({why})"
        return Refused("TTL-001", message, name="LeaseLost")
    return None


def expire_due(state: HasLeases, command: ExpireDue, now_ms: int) -> Decided | Refused:
    """LEA-003, LEA-005, TTL-001: end what has expired by now, in bounded steps; each job is ended once."""
    events: list[Event] = []
    ended: set[bytes] = set()
    queue, leases = state.queue, state.leases
    for job_id in chain(queue.expiry_times.due_until(now_ms), queue.expiry_heights.due_until(state.open_height - 1)):
        if len(ended) == command.limit:
            break
        job = queue.jobs[TaskId(job_id)]
        if job_id not in ended and (why := why_must_expire(state, job, now_ms)):
            events += expiry_events(state, job, why, now_ms)
            ended.add(job_id)
    for lease_id in leases.due_index.due_until(now_ms):
        if len(ended) == command.limit:
            break
        lease = leases.by_id[LeaseId(lease_id)]
        job_id = queue.jobs[lease.job_id].parent or lease.job_id  # the end of one replica can end them all
        if job_id not in ended and (cause := _why_lease_due(lease, now_ms)):
            events += failure_events(state, lease, *cause, now_ms)
            ended.add(job_id)
    return Decided(tuple(events), repeat_of=None if events else state.last_event)


def _why_lease_due(lease: Lease, now_ms: int) -> tuple[LeaseStatus, str] | None:
    """RCV-001: a submission waits for its verdict, however long that takes."""
    if lease.submitted is not None:
        return None
    if not is_live(lease, now_ms):
        return LeaseStatus.EXPIRED, "LEASE_EXPIRED"
    if lease.acked_ms is None and now_ms >= lease.ack_by_ms:
        return LeaseStatus.CANCELLED, "ACK_TIMEOUT"
    return None


def failure_events(
    state: HasLeases, lease: Lease, status: LeaseStatus, reason: str, now_ms: int, detail: str = ""
) -> tuple[Event, ...]:
    """RTY-001 … RTY-003: the failure counts against the provider; the job is retried, unless it has failed too often or
    would expire before."""
    job, policy = state.queue.jobs[lease.job_id], state.policy
    wait_ms = retry.delay_ms(job.kind, job.id, job.failures, policy.retry)
    deny_ms = policy.provider.lease_expired_deny_ms if reason == "LEASE_EXPIRED" else 0
    closed = LeaseClosed(
        id=lease.id,
        status=status,
        reason=reason,
        at_ms=now_ms,
        is_failure=True,
        not_before_ms=now_ms + wait_ms,
        denied_until_ms=_until_ms(now_ms, deny_ms),
        job_id=job.id,
        detail=detail,
    )
    worse = health.on_failure(state, state.providers[lease.provider_id], reason, now_ms)
    over: JobFailed | JobExpired
    if job.failures + 1 >= policy.retry.failures_max:
        over = JobFailed(job.id, ATTEMPTS_EXHAUSTED, now_ms)
    elif why := why_expired(state, quorum.parent_job(state, job), now_ms + wait_ms):
        over = JobExpired(job.id, why, now_ms)
    else:
        return closed, worse
    return closed, worse, *quorum.give_up_events(state, lease, job, over, now_ms)


def _until_ms(now_ms: int, lasts_ms: int) -> int:
    return now_ms + lasts_ms if lasts_ms else 0


def expiry_events(state: HasLeases, job: Job, why: str, now_ms: int) -> tuple[Event, ...]:
    """TTL-001: live leases are closed without penalty."""
    return *quorum.close_leases(state, job, "JOB_EXPIRED", now_ms), JobExpired(job.id, why, now_ms)


def why_must_expire(state: HasLeases, job: Job, now_ms: int) -> str | None:
    """TTL-001: which TTL of a live job has ended; a submission freezes them all until the verdict.

    Replicas have the TTLs of their job (LEA-009).
    """
    job = quorum.parent_job(state, job)
    why = why_expired(state, job, now_ms)
    if why is None or job.state not in LIVE_STATES:
        return None
    is_frozen = any(lease.submitted is not None for lease in quorum.live_leases(state, job))
    return None if is_frozen else why


def why_expired(state: HasLeases, job: Job, at_ms: int) -> str | None:
    """TTL-001: which TTL of a job has ended at this time, even while a submission waits."""
    if at_ms >= job.expires_ms:
        return "TTL"
    if job.relative_expires_ms is not None and at_ms >= job.relative_expires_ms:
        return "RELATIVE_TTL"
    return "RESULT_TTL" if 0 < job.expires_height < state.open_height else None


def revoke_leases(state: HasLeases, provider: Provider, after: ProviderStatus, now_ms: int, limit: int) -> list[Event]:
    """LEA-007: its leases end without penalty, and their jobs can be assigned to others at once.

    A lease with a submission waits for its verdict: the work is done and is paid for.
    """
    reason = REVOKE_REASONS.get(after)
    if reason is None:
        return []
    live = [lease for lease in state.leases.of(provider.id) if lease.submitted is None]
    return [close_without_penalty(lease, reason, now_ms) for lease in live[:limit]]
