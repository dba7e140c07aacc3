"""A quote (JOB-008): which providers could run a job now, its position in the queue, and why others cannot run it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.event import PAYLOAD_TAG
from holdfast.core.base.records import record_from
from holdfast.core.base.values import EventNo, ProviderId, TaskId
from holdfast.core.job.model import Job
from holdfast.core.match.decide import HasMatching
from holdfast.core.match.eligibility import lease_cap, price_of, why_not_eligible
from holdfast.core.provider.model import Provider
from holdfast.core.queue import priority
from holdfast.core.queue.messages import Enqueue
from holdfast.core.queue.ready_queue import sort_key_of

NAMED_MAX: Final = 100
"""How many eligible and ineligible providers a quote lists; it counts them all."""
_SORTS_LAST: Final = TaskId(b"\xff" * 32)
"""The id of a hypothetical job: it comes after jobs of equal priority and age."""


class EligibleProvider(msgspec.Struct, frozen=True):
    """A provider that could run the job now."""

    provider_id: ProviderId
    name: str
    region: str
    price: int
    cost: int
    """What it would charge for all units."""
    free_slots: int


class IneligibleProvider(msgspec.Struct, frozen=True):
    """A provider that could not, and the reason."""

    provider_id: ProviderId
    name: str
    why_not: str


class Quote(msgspec.Struct):
    """A quote as a requester sees it; it is not binding."""

    position: int
    """How many ready jobs come before it, now or when its time comes."""
    waiting: int
    """How many jobs are ready."""
    could: int = 0
    could_not: int = 0
    providers: list[EligibleProvider] = []
    """Some of those that could, the cheapest first."""
    refused: list[IneligibleProvider] = []
    """Some of those that could not."""
    not_before_ms: int = 0
    """JOB-013: until then it waits for its time, or for a retry, whoever could run it; 0: it waits for nothing else."""

    def add_providers(self, state: HasMatching, providers: Iterable[Provider], job: Job, now_ms: int) -> None:
        """Check some more providers."""
        for provider in providers:
            reason = why_not_eligible(state, provider, job, now_ms)
            if reason is None:
                self.could += 1
                self.providers.append(
                    EligibleProvider(
                        provider_id=provider.id,
                        name=provider.name,
                        region=provider.region,
                        price=(price := price_of(provider, job.requirements)),
                        cost=price * job.units,
                        free_slots=lease_cap(provider, state.policy) - provider.leases,
                    )
                )
            else:
                self.could_not += 1
                if len(self.refused) < NAMED_MAX:
                    self.refused.append(IneligibleProvider(provider.id, provider.name, reason))
        self.providers = sorted(self.providers, key=lambda eligible: (eligible.cost, eligible.provider_id))[:NAMED_MAX]


def quote(state: HasMatching, job: Job) -> Quote:
    """The position that the job has or would have; providers are added by `add_providers`."""
    ready_queue = state.queue.ready_queue
    waiting = sum(len(group.by_priority) for group in ready_queue.groups.values())
    return Quote(ready_queue.rank(sort_key_of(job)), waiting, not_before_ms=job.not_before_ms)


def hypothetical_job(state: HasMatching, command: Enqueue, now_ms: int) -> Job:
    """The job that this command would admit."""
    size, digest = len(command.payload), H(PAYLOAD_TAG, command.payload)
    run_at_ms = command.not_before_ms if command.not_before_ms > now_ms else 0
    rank = priority.sort_priority(command.max_fee, size, command.tier, run_at_ms or now_ms, state.policy.priority)
    return record_from(
        Job,
        command,
        event=EventNo(0),
        id=_SORTS_LAST,
        height=state.open_height,
        size_bytes=size,
        spec_digest=digest,
        priority=rank,
        enqueue_ms=now_ms,
        expires_ms=now_ms,
        quorum_m=0,
        not_before_ms=run_at_ms,
        run_at_ms=run_at_ms,
    )
