"""Whether a lease is acknowledged, renewed, given back, or over."""

from __future__ import annotations

from itertools import chain
from typing import Final

from holdfast.core import retry
from holdfast.core.event import Decided, Event
from holdfast.core.job.record import LIVE, Job
from holdfast.core.lease import quorum
from holdfast.core.lease.acts import (
    AckLease,
    DeclineLease,
    FailLease,
    JobExpired,
    JobFailed,
    LeaseAcked,
    LeaseClosed,
    LeaseRenewed,
    Reap,
    RenewLease,
)
from holdfast.core.lease.record import Lease, LeaseStatus, Leasing, has_lapsed, is_live, lease_ms
from holdfast.core.provider import health
from holdfast.core.queue import decide as may_queue
from holdfast.core.queue.acts import Cancel, JobCancelled
from holdfast.core.queue.decide import job_of
from holdfast.core.refusal import Refused
from holdfast.core.values import LeaseId, ProviderId, TaskId

ATTEMPTS_EXHAUSTED: Final = "ATTEMPTS_EXHAUSTED"
TTL_OVER, RELATIVE_TTL_OVER, RESULT_TTL_OVER = "TTL", "RELATIVE_TTL", "RESULT_TTL"


def ack(state: Leasing, command: AckLease, now_ms: int) -> Decided | Refused:
    """LEA-003: in time it is an ACK; again it is the same one."""
    lease = held_by(state, command.id, command.provider_id, now_ms)
    if isinstance(lease, Refused):
        return lease
    if lease.acked_ms is not None:
        return Decided((), since=lease.event)
    return Decided((LeaseAcked(lease.id, now_ms),))


def renew(state: Leasing, command: RenewLease, now_ms: int) -> Decided | Refused:
    """LEA-004: while the lease lives, both marks move by a part of T, a few times."""
    lease = held_by(state, command.id, command.provider_id, now_ms)
    if isinstance(lease, Refused):
        return lease
    policy = state.policy.lease
    if command.renewal == lease.renewals:
        return Decided((), since=lease.event)
    if command.renewal != lease.renewals + 1:
        return Refused("LEA-004", f"renewal {command.renewal} after {lease.renewals}", name="InvalidParams")
    if lease.renewals >= policy.renewals_max:
        return Refused("LEA-004", f"lease {lease.id.hex()} was renewed {lease.renewals} times", "finish, or let it go")
    more = lease_ms(state.queue.jobs[lease.job_id].kind, policy) * policy.renew_extends_per_mille // 1_000
    marks = (lease.t_deadline_ms + more, lease.renew_by_ms + more)
    return Decided((LeaseRenewed(lease.id, *marks, now_ms >= lease.renew_by_ms, lease.job_id),))


def decline(state: Leasing, command: DeclineLease, now_ms: int) -> Decided | Refused:
    """LEA-006: no failure; the job waits again at once, and others have it before this one for a while."""
    if not command.reason.isprintable():
        return Refused("LEA-006", "reason: printable signs", name="InvalidParams")
    lease = held_by(state, command.id, command.provider_id, now_ms)
    if isinstance(lease, Refused):
        return lease
    told = (LeaseStatus.CANCELLED, command.reason[:64], now_ms, False, now_ms)
    denied_ms = _until(now_ms, state.policy.lease.decline_cooldown_ms)
    return Decided((LeaseClosed(lease.id, *told, denied_ms, lease.job_id),))


def fail(state: Leasing, command: FailLease, now_ms: int) -> Decided | Refused:
    """RTY-001: PROVIDER_FAIL counts."""
    lease = held_by(state, command.id, command.provider_id, now_ms)
    if isinstance(lease, Refused):
        return lease
    return Decided(failed(state, lease, LeaseStatus.CANCELLED, "PROVIDER_FAIL", now_ms))


def cancel(state: Leasing, command: Cancel, now_ms: int) -> Decided | Refused:
    """JOB-008: a job that somebody works on is taken from them first, without blame."""
    job = job_of(state, command.id, command.by)
    leases = [] if isinstance(job, Refused) else quorum.live_leases(state, job)
    if isinstance(job, Refused) or not leases:
        return may_queue.cancel(state, command, now_ms)
    if any(lease.submitted is not None for lease in leases):
        return Refused("RCV-001", f"job {job.id.hex()} waits for the verdict on its result", "ask again in a moment")
    closed = quorum.closed(state, job, "JOB_CANCELLED", now_ms)
    return Decided((*closed, JobCancelled(job.id, command.reason, now_ms)), preface=len(closed))


def held_by(state: Leasing, id_: LeaseId, provider_id: ProviderId, now_ms: int) -> Lease | Refused:
    """The live lease, if it is this provider's and not handed in yet."""
    lease = state.leases.by_id.get(id_)
    if lease is None or has_lapsed(lease, now_ms):
        return Refused("LEA-005", f"lease {id_.hex()} is over", "its job went to others or has ended", "LeaseLost")
    if lease.provider_id != provider_id:
        return Refused("PRV-003", f"lease {id_.hex()} is another provider's", name="Forbidden")
    if lease.submitted is not None:
        return Refused("RCV-001", f"lease {id_.hex()} waits for the verdict on what was handed in")
    return why_not_held(state, lease, now_ms) or lease


def why_not_held(state: Leasing, lease: Lease, now_ms: int) -> Refused | None:
    """LEA-003, TTL-001: what is over is over when its time has come, not when somebody gets to end it."""
    if lease.acked_ms is None and now_ms >= lease.ack_by_ms:
        return Refused("LEA-003", f"lease {lease.id.hex()}: the time for its ACK is over", name="LeaseLost")
    if why := why_over(state, state.queue.jobs[lease.job_id], now_ms):
        says = f"lease {lease.id.hex()}: the time of its job is over ({why})"
        return Refused("TTL-001", says, name="LeaseLost")
    return None


def reap(state: Leasing, command: Reap, now_ms: int) -> Decided | Refused:
    """LEA-003, LEA-005, TTL-001: what is over by now, in bounded lots; each job is looked at once."""
    events: list[Event] = []
    ended: set[bytes] = set()
    queue, leases = state.queue, state.leases
    for job_id in chain(queue.agenda.upto(now_ms), queue.heights.upto(state.open_height - 1)):
        if len(ended) == command.limit:
            break
        job = queue.jobs[TaskId(job_id)]
        if job_id not in ended and (why := why_over(state, job, now_ms)):
            events += expired(state, job, why, now_ms)
            ended.add(job_id)
    for lease_id in leases.agenda.upto(now_ms):
        if len(ended) == command.limit:
            break
        lease = leases.by_id[LeaseId(lease_id)]
        job_id = queue.jobs[lease.job_id].parent or lease.job_id  # what one replica does can end them all
        if job_id not in ended and (cause := _why_lease_over(lease, now_ms)):
            events += failed(state, lease, *cause, now_ms)
            ended.add(job_id)
    return Decided(tuple(events), since=None if events else state.last_event)


def _why_lease_over(lease: Lease, now_ms: int) -> tuple[LeaseStatus, str] | None:
    """RCV-001: what was handed in waits for its verdict, however long that takes."""
    if lease.submitted is not None:
        return None
    if not is_live(lease, now_ms):
        return LeaseStatus.EXPIRED, "LEASE_EXPIRED"
    if lease.acked_ms is None and now_ms >= lease.ack_by_ms:
        return LeaseStatus.CANCELLED, "ACK_TIMEOUT"
    return None


def failed(state: Leasing, lease: Lease, status: LeaseStatus, reason: str, now_ms: int) -> tuple[Event, ...]:
    """RTY-001 … RTY-003: it counts against the provider; the job waits and tries again, unless it has failed too often
    or its time would be over."""
    job, policy = state.queue.jobs[lease.job_id], state.policy
    wait_ms = retry.delay_ms(job.kind, job.id, job.failures, policy.retry)
    deny_ms = policy.provider.lease_expired_deny_ms if reason == "LEASE_EXPIRED" else 0
    closed = LeaseClosed(lease.id, status, reason, now_ms, True, now_ms + wait_ms, _until(now_ms, deny_ms), job.id)
    blame = health.blamed(state, state.providers[lease.provider_id], reason, now_ms)
    if job.failures + 1 >= policy.retry.failures_max:
        over = JobFailed(job.id, ATTEMPTS_EXHAUSTED, now_ms)
        return closed, *blame, *quorum.given_up(state, lease, job, over, now_ms)
    if why := why_ended(state, quorum.whole(state, job), now_ms + wait_ms):
        return closed, *blame, *quorum.given_up(state, lease, job, JobExpired(job.id, why, now_ms), now_ms)
    return closed, *blame


def _until(now_ms: int, lasts_ms: int) -> int:
    return now_ms + lasts_ms if lasts_ms else 0


def expired(state: Leasing, job: Job, why: str, now_ms: int) -> tuple[Event, ...]:
    """TTL-001: whatever runs is cancelled without blame."""
    return *quorum.closed(state, job, "JOB_EXPIRED", now_ms), JobExpired(job.id, why, now_ms)


def why_over(state: Leasing, job: Job, now_ms: int) -> str | None:
    """TTL-001: which of a live job's times has ended; what was handed in freezes them all until the verdict.

    Replicas have the times of their job (LEA-009).
    """
    job = quorum.whole(state, job)
    if job.state not in LIVE or _is_handed_in(state, job):
        return None
    return why_ended(state, job, now_ms)


def _is_handed_in(state: Leasing, job: Job) -> bool:
    if job.quorum_m:
        return any(lease.submitted is not None for lease in quorum.live_leases(state, job))
    lease = state.leases.by_job.get(job.id)
    return lease is not None and lease.submitted is not None


def why_ended(state: Leasing, job: Job, at_ms: int) -> str | None:
    """TTL-001: which of a job's times is over at this moment, whatever runs."""
    relative_ms = job.relative_expires_ms
    if at_ms >= job.expires_ms:
        return TTL_OVER
    if relative_ms is not None and at_ms >= relative_ms:
        return RELATIVE_TTL_OVER
    return RESULT_TTL_OVER if 0 < job.expires_height < state.open_height else None
