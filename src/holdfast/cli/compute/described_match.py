"""Matching over a described state (CMP-001): the tick of a node, without a node and without its batch limit."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import (
    ZERO_DIGEST,
    AccountId,
    EventNo,
    Height,
    Kind,
    ProviderId,
    Seed,
    TaskId,
    Tier,
)
from holdfast.core.job.model import Job
from holdfast.core.match.provider_index import IndexedProvider, ProviderIndex
from holdfast.core.match.tick import KIND_INDEX, Tick
from holdfast.core.policy import MatchOrder, Policy, PriorityPolicy, QuotaPolicy
from holdfast.core.provider.model import Provider, ProviderStatus, split_price
from holdfast.core.queue import priority
from holdfast.core.queue.live.live_jobs import LiveJobs
from holdfast.core.queue.ready_queue import JobShape, rebuild_ready_queue, task_id_of

_NO_CAP = 2**64
"""In a described state each provider has its own lease cap."""


class MatchSettings(msgspec.Struct, frozen=True):
    """The settings that a tick depends on."""

    order: MatchOrder
    interleave_every: int


class WaitingJob(msgspec.Struct, frozen=True):
    """A job of the described queue."""

    job_id: TaskId
    kind: Kind
    max_fee: int
    size_bytes: int
    tier: Tier
    enqueue_ts_ms: int
    units: int
    requirements: dict[str, object]


class OpenProvider(msgspec.Struct, frozen=True):
    """A provider of the described state: filters that the description leaves out are passed."""

    provider_id: ProviderId
    status: ProviderStatus
    health_ppm: int
    stake: int
    region: str
    capabilities: dict[str, object]
    leases_active: int
    leases_max: int
    units_used: dict[Kind, int]
    units_max: dict[Kind, int]
    price: int | dict[str, int] = 0
    """For a unit of work; as a map by model, with the price of all others under `*`."""


class _DescribedState(msgspec.Struct):
    """The parts of a state that the provider index reads."""

    policy: Policy
    providers: dict[ProviderId, Provider]
    changed_providers: set[ProviderId] = set()


def assignments(
    seed: Seed, counter: int, policy: MatchSettings, jobs: list[WaitingJob], providers: list[OpenProvider]
) -> list[list[bytes]]:
    """MAT-003 … MAT-005: pairs of job and provider in the order made; `jobs` is the whole queue."""
    waiting, provider_index = LiveJobs(), ProviderIndex()
    waiting.update((job.id, job) for job in _jobs(jobs))
    ready_queue = rebuild_ready_queue(waiting.values())
    rules = Policy(quota=QuotaPolicy(leases_per_provider_max=_NO_CAP))
    records = {described.provider_id: _provider(described) for described in providers}
    provider_index.refresh(_DescribedState(rules, records), 0)
    ready_queue.regroup(waiting, is_by_caller=False, prices=provider_index.prices)
    tick = Tick(ready_queue, provider_index, _DescribedRules(providers), policy.order, seed)
    return [[task_id_of(sort_key), entry.provider.id] for sort_key, entry in tick.run(counter, policy.interleave_every)]


class _DescribedRules:
    """The rules, as far as the description goes."""

    def __init__(self, providers: list[OpenProvider]) -> None:
        self._units = {
            described.provider_id: [
                described.units_max.get(kind, 0) - described.units_used.get(kind, 0) for kind in KIND_INDEX
            ]
            for described in providers
        }

    def units_left(self, entry: IndexedProvider) -> list[int]:
        return self._units[entry.provider.id].copy()

    def is_open(self, shape: JobShape) -> bool:
        return True

    def provider_filter(self, shape: JobShape) -> Callable[[IndexedProvider], bool] | None:
        return None

    def window(self, shape: JobShape) -> tuple[int, int] | None:
        return None


def _jobs(described: list[WaitingJob]) -> list[Job]:
    """As records. Priorities of described jobs can be beyond 64 bits: only their order counts, so ranks are stored."""
    rules = PriorityPolicy()
    keys = [
        priority.sort_priority(job.max_fee, job.size_bytes, job.tier, job.enqueue_ts_ms, rules) for job in described
    ]
    rank = {key: at for at, key in enumerate(sorted(set(keys)))}
    return [_job(job, rank[key]) for job, key in zip(described, keys, strict=True)]


def _job(described: WaitingJob, rank: int) -> Job:
    return Job(
        event=EventNo(0),
        id=described.job_id,
        kind=described.kind,
        caller=AccountId(""),
        tier=described.tier,
        height=Height(0),
        tx_hash=ZERO_DIGEST,
        nonce=0,
        request_hash=ZERO_DIGEST,
        size_bytes=described.size_bytes,
        spec_digest=ZERO_DIGEST,
        max_fee=described.max_fee,
        units=described.units,
        priority=rank,
        enqueue_ms=described.enqueue_ts_ms,
        expires_ms=0,
        requirements=canonical(described.requirements),
        proof="",
    )


def _provider(described: OpenProvider) -> Provider:
    price, prices = split_price(described.price)
    provider = Provider(
        id=described.provider_id,
        event=EventNo(0),
        public=b"",
        name="",
        account=AccountId(""),
        capabilities=canonical(described.capabilities),
        region=described.region,
        price=price,
        slots=described.leases_max,
        attested_until_ms=0,
        registered_ms=0,
        status=described.status,
        stake=described.stake,
        health_ppm=described.health_ppm,
        prices=prices,
    )
    provider.leases = described.leases_active
    return provider
