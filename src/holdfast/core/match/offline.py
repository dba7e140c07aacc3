"""Matching over a world that somebody describes (CMP-001): the tick of a node, without a node and without its limit."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.core import priority
from holdfast.core.canon import canonical
from holdfast.core.job.record import Job
from holdfast.core.match.supply import Seat, Supply
from holdfast.core.match.tick import KIND_AT, Tick
from holdfast.core.policy import MatchOrder, Policy, PriorityPolicy, QuotaPolicy
from holdfast.core.provider.record import Provider, ProviderStatus
from holdfast.core.queue.line import Ask, job_at, made
from holdfast.core.values import (
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

_NO_CAP = 2**64
"""Each provider says itself how many leases it may have."""


class MatchKnobs(msgspec.Struct, frozen=True):
    """What of the policy decides a tick."""

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
    """A provider of the described registry: what is not told of it is as it should be."""

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


class _World(msgspec.Struct):
    """What the supply reads."""

    policy: Policy
    providers: dict[ProviderId, Provider]
    stale: set[ProviderId] = set()


def assignments(
    seed: Seed, counter: int, policy: MatchKnobs, jobs: list[WaitingJob], providers: list[OpenProvider]
) -> list[list[bytes]]:
    """MAT-003 … MAT-005: pairs of job and provider in the order made; `jobs` is the whole queue."""
    line, supply = made(_jobs(jobs)), Supply()
    rules = Policy(quota=QuotaPolicy(leases_per_provider_max=_NO_CAP))
    supply.refresh(_World(rules, {each.provider_id: _provider(each) for each in providers}), 0)
    tick = Tick(line, supply, _Told(providers), policy.order, seed)
    return [[job_at(place), seat.provider.id] for place, seat in tick.run(counter, policy.interleave_every)]


class _Told:
    """The rules as far as they are told."""

    def __init__(self, providers: list[OpenProvider]) -> None:
        self._units = {
            each.provider_id: [each.units_max.get(kind, 0) - each.units_used.get(kind, 0) for kind in KIND_AT]
            for each in providers
        }

    def units_left(self, seat: Seat) -> list[int]:
        return self._units[seat.provider.id].copy()

    def is_open(self, ask: Ask) -> bool:
        return True

    def welcome(self, ask: Ask) -> Callable[[Seat], bool] | None:
        return None

    def window(self, ask: Ask) -> tuple[int, int] | None:
        return None


def _jobs(told: list[WaitingJob]) -> list[Job]:
    """As records. Keys of described jobs can be beyond 64 bits: only their order counts, so that is stored."""
    rules = PriorityPolicy()
    keys = [priority.key(each.max_fee, each.size_bytes, each.tier, each.enqueue_ts_ms, rules) for each in told]
    rank = {key: at for at, key in enumerate(sorted(set(keys)))}
    return [_job(each, rank[key]) for each, key in zip(told, keys, strict=True)]


def _job(told: WaitingJob, rank: int) -> Job:
    who = (EventNo(0), told.job_id, told.kind, AccountId(""), told.tier, Height(0), ZERO_DIGEST, 0, ZERO_DIGEST)
    asked = (told.size_bytes, ZERO_DIGEST, told.max_fee, told.units, rank, told.enqueue_ts_ms, 0)
    return Job(*who, *asked, canonical(told.requirements), "")


def _provider(told: OpenProvider) -> Provider:
    made_of = (told.provider_id, EventNo(0), b"", "", AccountId(""), canonical(told.capabilities), told.region, 0)
    provider = Provider(*made_of, told.leases_max, 0, 0, told.status, told.stake, told.health_ppm)
    provider.leases = told.leases_active
    return provider
