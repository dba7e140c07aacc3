"""What an event does to leases, their jobs and their providers."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import OwnershipTaken
from holdfast.core.base.fsm import next_state
from holdfast.core.base.values import LeaseId, ProviderId
from holdfast.core.job.job_class import denial_key, job_class
from holdfast.core.job.model import Job, JobTransition, expires_at_ms
from holdfast.core.lease.messages import CompletionSubmitted, JobAssigned, LeaseAcked, LeaseClosed, LeaseRenewed
from holdfast.core.lease.model import (
    LEASE_TRANSITIONS,
    HasLeases,
    Lease,
    LeaseStatus,
    LeaseTransition,
    due_ms,
    is_live,
)
from holdfast.core.provider.apply import touch
from holdfast.core.queue import apply as queue_apply
from holdfast.core.queue import quota

EVICT_EVERY: Final = 256
"""Ended denials are evicted whenever the number of denials is a multiple of this."""


def apply_job_assigned(state: HasLeases, event: JobAssigned) -> None:
    """LEA-002: at most one live lease per job, always."""
    job, provider = state.queue.jobs[event.job_id], state.providers[event.provider_id]
    if event.job_id in state.leases.by_job:
        raise Corrupt("LEA-002", f"job {event.job_id.hex()} has a live lease already")
    lease = Lease(
        event=state.last_event,
        id=event.lease_id,
        job_id=event.job_id,
        provider_id=event.provider_id,
        attempt=event.attempt,
        t_start_ms=event.t_start_ms,
        t_deadline_ms=event.t_deadline_ms,
        renew_by_ms=event.renew_by_ms,
        ack_by_ms=event.ack_by_ms,
        price=event.price,
        duration_ms=event.t_deadline_ms - event.t_start_ms,
    )
    if event.units:
        lease.units = event.units
        lease.epoch = quota.reserve_units(state, provider.id, job.kind, event.units, event.epoch)
    queue_apply.transition(state, job, JobTransition.ASSIGN)
    job.attempts = event.attempt + 1
    if job.relative_expires_ms is None:
        _start_relative_ttl(state, job, event.relative_expires_ms)
    state.leases.add(lease)
    state.assignments += 1
    provider.leases += 1
    touch(state, provider)
    _touch(state, lease)


def _start_relative_ttl(state: HasLeases, job: Job, expires_ms: int) -> None:
    """TTL-001: it counts from the first lease; of replicas, from the first lease of any of them (LEA-009)."""
    if job.parent:
        job.relative_expires_ms = expires_ms
        job = state.queue.jobs[job.parent]
        if job.relative_expires_ms is not None:
            return
        state.touched["job"][job.event] = job
    before_ms, job.relative_expires_ms = expires_at_ms(job), expires_ms
    state.queue.expiry_times.move(job.id, before_ms, expires_at_ms(job))


def apply_lease_acked(state: HasLeases, event: LeaseAcked) -> None:
    lease = state.leases.by_id[event.id]
    before_ms, lease.acked_ms = due_ms(lease), event.at_ms
    state.leases.due_index.move(lease.id, before_ms, due_ms(lease))
    _touch(state, lease)


def apply_lease_renewed(state: HasLeases, event: LeaseRenewed) -> None:
    lease = state.leases.by_id[event.id]
    before_ms = due_ms(lease)
    _transition(lease, LeaseTransition.RENEW)
    lease.t_deadline_ms, lease.renew_by_ms = event.t_deadline_ms, event.renew_by_ms
    lease.renewals += 1
    lease.late_renewals += event.is_late
    state.leases.due_index.move(lease.id, before_ms, due_ms(lease))
    _touch(state, lease)


def apply_lease_closed(state: HasLeases, event: LeaseClosed) -> None:
    """RTY-001: a failure counts against the job and the provider; a cancelled lease does not."""
    transition = LeaseTransition.EXPIRE if event.status is LeaseStatus.EXPIRED else LeaseTransition.CANCEL
    lease = finish(state, event.id, transition, event.reason, event.at_ms)
    job, provider = state.queue.jobs[lease.job_id], state.providers[lease.provider_id]
    if event.is_failure:
        job.failures += 1
        job.reason = event.reason
        provider.failed += 1
        provider.failures_in_row += 1
    if event.denied_until_ms:
        _deny(state, lease.provider_id, job, event)
    job.not_before_ms = event.not_before_ms
    queue_apply.transition(state, job, JobTransition.RETURN)
    touch(state, provider)


def apply_completion_submitted(state: HasLeases, event: CompletionSubmitted) -> None:
    """RCV-001: the lease is frozen until the verdict. A submission counts as ACK (LEA-003)."""
    lease = state.leases.by_id[event.lease_id]
    if lease.acked_ms is None:
        before_ms, lease.acked_ms = due_ms(lease), event.at_ms
        state.leases.due_index.move(lease.id, before_ms, due_ms(lease))
    lease.submitted, lease.submitted_size, lease.submitted_ms = event.digest, event.size, event.at_ms
    state.submissions[lease.id] = event.envelope
    _touch(state, lease)


def finish(state: HasLeases, id_: LeaseId, transition: LeaseTransition, reason: str, at_ms: int) -> Lease:
    """The lease's last transition; its slot is free again, and so are its units unless it was completed (QUO-001)."""
    lease = state.leases.by_id[id_]
    state.leases.remove(lease)
    _transition(lease, transition)
    lease.reason, lease.ended_ms = reason, at_ms
    state.submissions.pop(id_, None)
    if lease.units:
        kind, is_done = state.queue.jobs[lease.job_id].kind, transition is LeaseTransition.COMPLETE
        quota.settle_units(state, lease.provider_id, kind, lease.units, lease.epoch, is_completed=is_done)
    state.providers[lease.provider_id].leases -= 1
    _touch(state, lease)
    return lease


def _deny(state: HasLeases, provider_id: ProviderId, job: Job, event: LeaseClosed) -> None:
    """LEA-006, RTY-003: the provider is skipped for this class for a while. Ended denials are evicted in steps."""
    denials = state.class_denials
    if len(denials) >= EVICT_EVERY and len(denials) % EVICT_EVERY == 0:
        for key in [key for key, until_ms in denials.items() if until_ms <= event.at_ms]:
            del denials[key]
    key = denial_key(provider_id, job_class(job.kind, job.requirements))
    denials[key] = max(denials.get(key, 0), event.denied_until_ms)


def credit_outage(state: HasLeases, event: OwnershipTaken) -> None:
    """LEA-008: an outage of the node counts against no lease; deadlines that had passed before it stay passed."""
    for lease in list(state.leases.by_id.values()):
        by_ms = min(event.outage_ms, lease.duration_ms - lease.credited_ms)
        went_down_ms = event.at_ms - event.outage_ms
        if by_ms <= 0 or not is_live(lease, went_down_ms):
            continue
        before_ms = due_ms(lease)
        lease.t_deadline_ms += by_ms
        lease.renew_by_ms += by_ms if lease.renew_by_ms > went_down_ms else 0
        lease.ack_by_ms += by_ms if lease.ack_by_ms > went_down_ms else 0
        lease.credited_ms += by_ms
        state.leases.due_index.move(lease.id, before_ms, due_ms(lease))
        _touch(state, lease)


def _transition(lease: Lease, transition: LeaseTransition) -> None:
    after = next_state(LEASE_TRANSITIONS, lease.status, transition)
    if after is None:
        raise Corrupt("LEA-002", f"lease {lease.id.hex()} is {lease.status} and allows no {transition}")
    lease.status = after


def _touch(state: HasLeases, lease: Lease) -> None:
    state.touched["lease"][lease.event] = lease
