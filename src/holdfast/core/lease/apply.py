"""What an event does to leases, their jobs and their providers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import OwnershipTaken
from holdfast.core.base.fsm import by_transition
from holdfast.core.base.values import EventNo, Kind, LeaseId, ProviderId, TaskId, tally
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
from holdfast.core.queue.model import InputClaim

EVICT_EVERY: Final = 256
"""Ended denials are evicted whenever the number of denials is a multiple of this."""


def apply_jobs_assigned(state: HasLeases, events: Sequence[JobAssigned], numbers: Sequence[EventNo]) -> None:
    """LEA-002: at most one live lease per job, always."""
    by_job, touched, leases = state.leases.by_job, state.touched["lease"], list[Lease]()
    jobs = state.queue.jobs.all_of([event.job_id for event in events])
    for number, event, job in zip(numbers, events, jobs, strict=True):
        if event.job_id in by_job:
            raise Corrupt("LEA-002", f"job {event.job_id.hex()} has a live lease already")
        lease = Lease(  # by position: by name takes several times as long, and every job needs it
            number, event.lease_id, event.job_id, event.provider_id, event.attempt, event.t_start_ms,
            event.t_deadline_ms, event.renew_by_ms, event.ack_by_ms, event.price,
            event.t_deadline_ms - event.t_start_ms,
        )  # fmt: skip
        job.attempts = event.attempt + 1
        touched[number] = by_job[event.job_id] = lease
        leases.append(lease)
    for epoch, group in groupby(zip(events, jobs, leases, strict=True), key=lambda each: each[0].epoch):
        _reserve_units(state, epoch, list(group))
    _start_relative_ttl(state, [(job, event.relative_expires_ms) for job, event in zip(jobs, events, strict=True)])
    queue_apply.transition(state, jobs, JobTransition.ASSIGN)
    state.leases.add_many(leases)
    state.assignments += len(events)
    _count_leases(state, tally([event.provider_id for event in events]), 1)


def _reserve_units(state: HasLeases, epoch: int, granted: Sequence[tuple[JobAssigned, Job, Lease]]) -> None:
    """QUO-001: by provider and kind at once; a lease counts in the epoch that its provider has reached."""
    sums: dict[tuple[ProviderId, Kind], int] = {}
    for event, job, lease in granted:
        lease.units = event.units
        used = event.provider_id, job.kind
        sums[used] = sums.get(used, 0) + event.units
    epochs = {used: quota.reserve_units(state, *used, units, epoch) for used, units in sums.items() if units}
    for event, job, lease in granted:
        if event.units:
            lease.epoch = epochs[event.provider_id, job.kind]


def _count_leases(state: HasLeases, counts: Mapping[ProviderId, int], sign: int) -> None:
    for id_, count in counts.items():
        provider = state.providers[id_]
        provider.leases += sign * count
        touch(state, provider)


def _start_relative_ttl(state: HasLeases, starts: Iterable[tuple[Job, int]]) -> None:
    """TTL-001: it counts from the first lease; of replicas, from the first lease of any of them (LEA-009)."""
    moves: list[tuple[TaskId, int, int]] = []
    for job, expires_ms in starts:
        if job.relative_expires_ms is not None:
            continue
        requested = job
        if job.parent:
            job.relative_expires_ms = expires_ms
            requested = state.queue.jobs[job.parent]
            if requested.relative_expires_ms is not None:
                continue
            state.touched["job"][requested.event] = requested
        before_ms, requested.relative_expires_ms = expires_at_ms(requested), expires_ms
        moves.append((requested.id, before_ms, expires_at_ms(requested)))
    state.queue.expiry_times.move_many(moves)


def apply_leases_acked(state: HasLeases, events: Sequence[LeaseAcked], _: Sequence[EventNo]) -> None:
    by_id, touched, moves = state.leases.by_id, state.touched["lease"], list[tuple[LeaseId, int, int]]()
    for event in events:
        lease = by_id[event.id]
        before_ms, lease.acked_ms = due_ms(lease), event.at_ms
        moves.append((event.id, before_ms, lease.t_deadline_ms))
        touched[lease.event] = lease
    state.leases.due_index.move_many(moves)


def apply_lease_renewed(state: HasLeases, event: LeaseRenewed) -> None:
    lease = state.leases.by_id[event.id]
    before_ms, after = due_ms(lease), _AFTER[LeaseTransition.RENEW].get(lease.status)
    if after is None:
        raise _refuse_transition(lease, LeaseTransition.RENEW)
    lease.status = after
    lease.t_deadline_ms, lease.renew_by_ms = event.t_deadline_ms, event.renew_by_ms
    lease.renewals += 1
    lease.late_renewals += event.is_late
    state.leases.due_index.move(lease.id, before_ms, due_ms(lease))
    state.touched["lease"][lease.event] = lease


def apply_lease_closed(state: HasLeases, event: LeaseClosed) -> None:
    """RTY-001: a failure counts against the job and the provider; a cancelled lease does not."""
    transition = LeaseTransition.EXPIRE if event.status is LeaseStatus.EXPIRED else LeaseTransition.CANCEL
    (lease,) = finish(state, transition, [(event.id, event.reason, event.at_ms)])
    job, provider = state.queue.jobs[lease.job_id], state.providers[lease.provider_id]
    lease.detail = event.detail
    if event.claim_until_ms:
        job.reason = event.reason
        queue_apply.deny_provider(state, job, lease.provider_id)
        earlier = state.input_claims.pop(job.parent or job.id, None)  # they are in the order of their times
        claimants = [*(earlier.providers if earlier is not None else ()), lease.provider_id]
        state.input_claims[job.parent or job.id] = InputClaim(event.claim_until_ms, claimants)
    if event.is_failure:
        job.failures += 1
        job.reason = event.reason
        provider.failed += 1
        provider.failures_in_row += 1
    if event.denied_until_ms:
        _deny(state, lease.provider_id, job, event)
    job.not_before_ms = event.not_before_ms
    queue_apply.transition(state, [job], JobTransition.RETURN)
    touch(state, provider)


def apply_completions_submitted(state: HasLeases, events: Sequence[CompletionSubmitted], _: Sequence[EventNo]) -> None:
    """RCV-001: the lease is frozen until the verdict. A submission counts as ACK (LEA-003)."""
    by_id, touched, submissions = state.leases.by_id, state.touched["lease"], state.submissions
    for event in events:
        lease = by_id[event.lease_id]
        if lease.acked_ms is None:
            before_ms, lease.acked_ms = due_ms(lease), event.at_ms
            state.leases.due_index.move(lease.id, before_ms, due_ms(lease))
        lease.submitted, lease.submitted_size, lease.submitted_ms = event.digest, event.size, event.at_ms
        submissions[event.lease_id] = event.envelope
        touched[lease.event] = lease


LeaseEnd = tuple[LeaseId, str, int]
"""A lease that ends, why, and when."""


def finish(state: HasLeases, transition: LeaseTransition, ends: Sequence[LeaseEnd]) -> list[Lease]:
    """The last transition of leases; slots are free again, and so are units unless it was completed (QUO-001)."""
    by_id, touched, submissions, attempts = (
        state.leases.by_id, state.touched["lease"], state.submissions, state.attempts
    )  # fmt: skip
    after, units = _AFTER[transition], dict[tuple[ProviderId, Kind, int], int]()
    leases = [by_id[id_] for id_, _, _ in ends]
    jobs = state.queue.jobs.all_of([lease.job_id for lease in leases])
    for (id_, reason, at_ms), lease, job in zip(ends, leases, jobs, strict=True):
        if (status := after.get(lease.status)) is None:
            raise _refuse_transition(lease, transition)
        lease.status, lease.reason, lease.ended_ms = status, reason, at_ms
        submissions.pop(id_, None)
        if lease.units:
            used = lease.provider_id, job.kind, lease.epoch
            units[used] = units.get(used, 0) + lease.units
        touched[lease.event] = lease
        attempts.setdefault(lease.job_id, []).append(lease)
    state.leases.remove_many(leases)
    is_completed = transition is LeaseTransition.COMPLETE
    for (provider_id, kind, epoch), count in units.items():
        quota.settle_units(state, provider_id, kind, count, epoch, is_completed=is_completed)
    _count_leases(state, tally([lease.provider_id for lease in leases]), -1)
    return leases


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
        state.touched["lease"][lease.event] = lease


_AFTER: Final = by_transition(LEASE_TRANSITIONS)


def _refuse_transition(lease: Lease, transition: LeaseTransition) -> Corrupt:
    return Corrupt("LEA-002", f"lease {lease.id.hex()} is {lease.status} and allows no {transition}")
