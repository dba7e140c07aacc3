"""What an event does to leases, to the jobs they hold and to the providers that hold them."""

from __future__ import annotations

from typing import Final

from holdfast.core import quota
from holdfast.core.event import OwnershipTaken
from holdfast.core.job.klass import denial_key, job_class
from holdfast.core.job.record import FailedJob, Job, JobAct, ends_ms
from holdfast.core.lease.acts import (
    CompletionSubmitted,
    JobAssigned,
    JobExpired,
    JobFailed,
    LeaseAcked,
    LeaseClosed,
    LeaseRenewed,
)
from holdfast.core.lease.record import (
    LEASE_LIFE,
    Lease,
    LeaseAct,
    LeaseStatus,
    Leasing,
    due_ms,
    is_live,
)
from holdfast.core.machine import step
from holdfast.core.provider.apply import touch
from holdfast.core.queue import apply as queue
from holdfast.core.refusal import Corrupt
from holdfast.core.values import LeaseId, ProviderId

FORGET_EVERY: Final = 256
"""How many denials pile up before those that are over are looked for."""


def apply_assigned(state: Leasing, event: JobAssigned) -> None:
    """LEA-002: at most one live lease per job, always."""
    job, provider = state.queue.jobs[event.job_id], state.providers[event.provider_id]
    if event.job_id in state.leases.by_job:
        raise Corrupt("LEA-002", f"job {event.job_id.hex()} has a live lease already")
    marks = (event.t_start_ms, event.t_deadline_ms, event.renew_by_ms, event.ack_by_ms)
    names = (event.lease_id, event.job_id, event.provider_id, event.attempt)
    lease = Lease(state.last_event, *names, *marks, event.price, event.t_deadline_ms - event.t_start_ms)
    if event.units:
        lease.units = event.units
        lease.epoch = quota.reserve(state, provider.id, job.kind, event.units, event.epoch)
    queue.move(state, job, JobAct.ASSIGN)
    job.attempts = event.attempt + 1
    if job.relative_expires_ms is None:
        _begin_relative(state, job, event.relative_expires_ms)
    state.leases.add(lease)
    state.assignments += 1
    provider.leases += 1
    touch(state, provider)
    _touch(state, lease)


def _begin_relative(state: Leasing, job: Job, expires_ms: int) -> None:
    """TTL-001: from the first lease on; of replicas, from the first of all of them on (LEA-009)."""
    if job.parent:
        job.relative_expires_ms = expires_ms
        job = state.queue.jobs[job.parent]
        if job.relative_expires_ms is not None:
            return
        state.touched["job"][job.event] = job
    before_ms, job.relative_expires_ms = ends_ms(job), expires_ms
    state.queue.agenda.move(job.id, before_ms, ends_ms(job))


def apply_acked(state: Leasing, event: LeaseAcked) -> None:
    lease = state.leases.by_id[event.id]
    before_ms, lease.acked_ms = due_ms(lease), event.at_ms
    state.leases.agenda.move(lease.id, before_ms, due_ms(lease))
    _touch(state, lease)


def apply_renewed(state: Leasing, event: LeaseRenewed) -> None:
    lease = state.leases.by_id[event.id]
    before_ms = due_ms(lease)
    _step(lease, LeaseAct.RENEW)
    lease.t_deadline_ms, lease.renew_by_ms = event.t_deadline_ms, event.renew_by_ms
    lease.renewals += 1
    lease.late_renewals += event.is_late
    state.leases.agenda.move(lease.id, before_ms, due_ms(lease))
    _touch(state, lease)


def apply_closed(state: Leasing, event: LeaseClosed) -> None:
    """RTY-001: a failure counts against the job and the provider; work that the system cancelled does not."""
    act = LeaseAct.EXPIRE if event.status is LeaseStatus.EXPIRED else LeaseAct.CANCEL
    lease = end(state, event.id, act, event.reason, event.at_ms)
    job, provider = state.queue.jobs[lease.job_id], state.providers[lease.provider_id]
    if event.is_failure:
        job.failures += 1
        job.reason = event.reason
        provider.failed += 1
        provider.failures_in_row += 1
    if event.denied_until_ms:
        _deny(state, lease.provider_id, job, event)
    job.not_before_ms = event.not_before_ms
    queue.move(state, job, JobAct.RETURN)
    touch(state, provider)


def apply_submitted(state: Leasing, event: CompletionSubmitted) -> None:
    """RCV-001: frozen until the verdict. Completing counts as ACK (LEA-003)."""
    lease = state.leases.by_id[event.lease_id]
    if lease.acked_ms is None:
        before_ms, lease.acked_ms = due_ms(lease), event.at_ms
        state.leases.agenda.move(lease.id, before_ms, due_ms(lease))
    lease.submitted, lease.submitted_size, lease.submitted_ms = event.digest, event.size, event.at_ms
    state.submissions[lease.id] = event.envelope
    _touch(state, lease)


def apply_expired(state: Leasing, event: JobExpired) -> None:
    queue.settle(state, queue.end(state, event.id, JobAct.EXPIRE, event.reason, event.ended_ms), None, 0)


def apply_failed(state: Leasing, event: JobFailed) -> None:
    last = state.queue.jobs[event.id].reason
    job = queue.end(state, event.id, JobAct.EXHAUST, event.reason, event.ended_ms)
    queue.settle(state, job, None, 0)
    told = (job.max_fee, job.attempts, job.requeues, last or (event.reason if job.quorum_m else ""), event.ended_ms)
    state.touched["failed_job"][job.event] = FailedJob(job.event, job.id, job.kind, job.caller, *told)


def end(state: Leasing, id_: LeaseId, act: LeaseAct, reason: str, at_ms: int) -> Lease:
    """The lease's last step; the provider has room again, and where the work was not done also its units (QUO-001)."""
    lease = state.leases.by_id[id_]
    state.leases.remove(lease)
    _step(lease, act)
    lease.reason, lease.ended_ms = reason, at_ms
    state.submissions.pop(id_, None)
    if lease.units:
        kind, is_done = state.queue.jobs[lease.job_id].kind, act is LeaseAct.COMPLETE
        quota.release(state, lease.provider_id, kind, lease.units, lease.epoch, is_done=is_done)
    state.providers[lease.provider_id].leases -= 1
    _touch(state, lease)
    return lease


def _deny(state: Leasing, provider_id: ProviderId, job: Job, event: LeaseClosed) -> None:
    """LEA-006, RTY-003: passed over for this class for a while. What is over is forgotten in lots."""
    denials = state.denials
    if len(denials) >= FORGET_EVERY and len(denials) % FORGET_EVERY == 0:
        for key in [key for key, until_ms in denials.items() if until_ms <= event.at_ms]:
            del denials[key]
    key = denial_key(provider_id, job_class(job.kind, job.requirements))
    denials[key] = max(denials.get(key, 0), event.denied_until_ms)


def forgive(state: Leasing, event: OwnershipTaken) -> None:
    """LEA-008: time in which nobody owned the journal counts against no lease: not a mark that had passed before."""
    for lease in list(state.leases.by_id.values()):
        by_ms = min(event.outage_ms, lease.t_ms - lease.forgiven_ms)
        went_down_ms = event.at_ms - event.outage_ms
        if by_ms <= 0 or not is_live(lease, went_down_ms):
            continue
        before_ms = due_ms(lease)
        lease.t_deadline_ms += by_ms
        lease.renew_by_ms += by_ms if lease.renew_by_ms > went_down_ms else 0
        lease.ack_by_ms += by_ms if lease.ack_by_ms > went_down_ms else 0
        lease.forgiven_ms += by_ms
        state.leases.agenda.move(lease.id, before_ms, due_ms(lease))
        _touch(state, lease)


def _step(lease: Lease, act: LeaseAct) -> None:
    after = step(LEASE_LIFE, lease.status, act)
    if after is None:
        raise Corrupt("LEA-002", f"lease {lease.id.hex()} is {lease.status} and allows no {act}")
    lease.status = after


def _touch(state: Leasing, lease: Lease) -> None:
    state.touched["lease"][lease.event] = lease
