"""Jobs whose input one provider called invalid, and that no other provider can try (JOB-012)."""

from __future__ import annotations

from itertools import islice

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Decided, Event
from holdfast.core.base.values import TaskId
from holdfast.core.job.model import Job
from holdfast.core.lease.input_claims import invalid_input_events
from holdfast.core.lease.quorum import live_leases
from holdfast.core.match.decide import HasMatching
from holdfast.core.match.eligibility import lease_cap, why_not_available, why_not_ever
from holdfast.core.queue.model import InputClaim


class JudgeInputClaims(Command, frozen=True):
    """End the jobs that no other provider could have tried for a while."""

    limit: int = 16


class InputClaimKept(Event, frozen=True, tag=62):
    """Another provider can still try the job, until then at least."""

    id: TaskId
    until_ms: int


def is_claim_due(state: HasMatching, now_ms: int) -> bool:
    first = next(iter(state.input_claims.values()), None)
    return first is not None and first.until_ms <= now_ms


def judge_input_claims(state: HasMatching, command: JudgeInputClaims, now_ms: int) -> Decided | Refused:
    """JOB-012: where no other provider was there to ask, one claim is enough."""
    events = list[Event]()
    for id_, claim in islice(state.input_claims.items(), command.limit):
        if claim.until_ms > now_ms:
            break
        job = state.queue.jobs[id_]
        if live_leases(state, job) or _can_be_tried(state, job, now_ms):
            events.append(InputClaimKept(id_, now_ms + state.policy.admission.input_claim_ms))
        else:
            events += invalid_input_events(state, job, now_ms)
    return Decided(tuple(events), repeat_of=None if events else state.last_event)


def _can_be_tried(state: HasMatching, job: Job, now_ms: int) -> bool:
    """Whether some provider is there that could get it, once it has a free slot; the claimants are denied.

    One that accepts no leases at all is as good as absent: it is paused, stops, or its disk is full.
    """
    policy = state.policy
    return any(
        lease_cap(provider, policy) > 0
        and why_not_available(provider, policy, now_ms) is None
        and why_not_ever(provider, job, policy) is None
        for provider in state.providers.values()
    )


def apply_claim_kept(state: HasMatching, event: InputClaimKept) -> None:
    claim = state.input_claims.pop(event.id)
    state.input_claims[event.id] = InputClaim(event.until_ms, claim.providers)
