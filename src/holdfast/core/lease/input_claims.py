"""A provider calls a job's input invalid (JOB-012): it loses nothing, and two of them end the job."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from holdfast.core.base.event import Event
from holdfast.core.base.values import LeaseId
from holdfast.core.job.model import Job
from holdfast.core.lease import quorum
from holdfast.core.lease.messages import close_without_penalty
from holdfast.core.lease.model import HasLeases, Lease
from holdfast.core.provider.messages import HealthChanged
from holdfast.core.provider.model import Provider
from holdfast.core.queue.decide import epoch_of
from holdfast.core.queue.messages import INVALID_INPUT, JobFailed

CLAIMS_NEEDED: Final = 2
DETAIL_MAX: Final = 500
"""How many characters of what a provider says are kept."""


def is_claim(reason: str) -> bool:
    return reason.partition(":")[0] == INVALID_INPUT


def clean_detail(reason: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in reason[:DETAIL_MAX])


def claim_events(state: HasLeases, lease: Lease, detail: str, now_ms: int, *, is_confirmed: bool) -> tuple[Event, ...]:
    """The lease ends without blame; with the claim of another account's provider, or the node's word, the job fails."""
    job = state.queue.jobs[lease.job_id]
    requested, provider = quorum.parent_job(state, job), state.providers[lease.provider_id]
    until_ms = now_ms + state.policy.admission.input_claim_ms
    closed = replace(close_without_penalty(lease, INVALID_INPUT, now_ms), detail=detail, claim_until_ms=until_ms)
    accounts = {claimant.account for claimant in (*claimants(state, requested), provider) if claimant.at_stake}
    is_enough = is_confirmed or len(accounts) >= CLAIMS_NEEDED
    if not is_enough or any(each.submitted is not None for each in quorum.live_leases(state, requested)):
        return (closed,)
    return closed, *invalid_input_events(state, requested, now_ms, lease.id)


def invalid_input_events(
    state: HasLeases, requested: Job, now_ms: int, excluding: LeaseId | None = None
) -> tuple[Event, ...]:
    """The job fails because of its input, without further attempts."""
    closed = quorum.close_leases(state, requested, INVALID_INPUT, now_ms, excluding)
    return *closed, JobFailed(requested.id, INVALID_INPUT, now_ms, epoch_of(state))


def claimants(state: HasLeases, requested: Job) -> list[Provider]:
    """Who called the input invalid since the job was admitted or requeued; replicas count for their job."""
    claim = state.input_claims.get(requested.id)
    return [state.providers[id_] for id_ in claim.providers] if claim is not None else []


def contradiction_events(state: HasLeases, requested: Job, now_ms: int) -> tuple[Event, ...]:
    """The result was proved by more than its provider's word: who called the input invalid was wrong, which costs
    health like a failure."""
    by_ppm = -state.policy.provider.provider_fail_decay_ppm
    return tuple(HealthChanged(each.id, by_ppm, INVALID_INPUT, now_ms) for each in claimants(state, requested))
