"""Which providers are available now: an index beside the records (MAT-002) that follows changes without a full scan.

Providers with equal profiles are one `ProfileGroup`; whether a job fits is computed once for each group.
`state.changed_providers` has those that changed (`provider.apply.touch`), `due_index` those that change by time alone.
The index is rebuilt from the records: an empty one fills itself with the first `refresh`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

import msgspec

from holdfast.core.base.values import Kind, ProviderId, Seed
from holdfast.core.index.due_index import DueIndex
from holdfast.core.match.eligibility import (
    Profile,
    decode_map,
    lease_cap,
    price_of,
    profile_of,
    why_not_able,
    why_not_available,
)
from holdfast.core.match.seed_shuffle import shuffle_in_place
from holdfast.core.policy import Policy
from holdfast.core.provider.model import Provider
from holdfast.core.queue.ready_queue import JobShape

FITTING_CACHE_MAX: Final = 4_096
"""The least size of the cache of fitting groups; a full cache is cleared."""
SORT_WHEN_ONE_IN: Final = 8
"""Where fewer than one in this many has capacity, those are sorted; else the whole order is walked."""


class ProfileGroup(msgspec.Struct):
    """The providers of one profile that have a free slot."""

    profile: Profile
    with_capacity: dict[ProviderId, IndexedProvider] = {}


class IndexedProvider(msgspec.Struct, eq=False):
    """The entry of one provider."""

    provider: Provider
    index_inputs: tuple[object, ...] = ()
    """The fields that the entry depends on, besides the leases, as of the last update."""
    group: int = -1
    is_available: bool = False
    has_capacity: bool = False
    """Available, with a free slot."""
    leases: int = 0
    """As of the last update."""
    cap: int = 0
    due_ms: int | None = None
    """When time alone changes whether it is available."""
    shuffle_position: int = 0
    """Its position in the shuffled order, where positions were computed."""


class IdleFingerprint(NamedTuple):
    """The state at the end of a tick that assigned all it could: while it is the same, another tick assigns nothing."""

    index_version: int
    queue_version: int
    leases_granted: int
    """The number of leases ever granted."""
    leases_ended: int
    """The number of them that have ended: each freed a slot."""
    epoch: int
    paused: tuple[str, ...]
    until_ms: int
    """When time alone can change it."""


class TickStats(NamedTuple):
    """The result of the last tick, for metrics."""

    jobs: int = 0
    starvation_picks: int = 0
    """How many of them were assigned as the oldest (MAT-005)."""
    duration: int = 0
    """Measured by the command's stopwatch."""


class HasSupply(Protocol):
    """The parts of the state that this index reads."""

    policy: Policy
    providers: dict[ProviderId, Provider]
    changed_providers: set[ProviderId]
    """Providers that changed since the last `refresh`."""


class ProviderIndex(msgspec.Struct):
    """The index. `refresh` brings it to a time; everything else is as of that time."""

    entries: dict[ProviderId, IndexedProvider] = {}
    available_ids: list[ProviderId] = []
    """MAT-002: the available providers, sorted by id."""
    available_entries: list[IndexedProvider] = []
    """Their entries, in the same order."""
    profile_groups: list[ProfileGroup] = []
    group_of: dict[Profile, int] = {}
    groups_with_capacity: set[int] = msgspec.field(default_factory=set)
    """The groups that have a provider with a free slot."""
    prices: set[int] = msgspec.field(default_factory=set)
    """All prices of all groups."""
    due_index: DueIndex = msgspec.field(default_factory=DueIndex)
    version: int = 0
    """Grows with every change, except of leases, that might make a provider eligible for a job that had none."""
    idle_fingerprint: IdleFingerprint | None = None
    """The state at the end of the last tick that assigned all it could."""
    last_tick: TickStats = TickStats()
    as_of_ms: int = 0
    fitting_cache_max: int = FITTING_CACHE_MAX
    """The size of the cache: twice the number of job groups, so that a tick never computes all of them again."""
    _policy: Policy | None = None
    _fitting_cache: dict[tuple[Kind, bytes, int], tuple[int, set[int]]] = {}
    """By shape: how many groups were checked, and which of them fit."""
    _order: list[IndexedProvider] = []
    _order_seed: Seed | None = None
    """The seed of `_order`; None once the available providers changed."""
    _has_positions: bool = False
    """Whether the entries have their positions in `_order`."""

    # ------------------------------------------------------------------------------------ kept up to date

    def refresh(self, state: HasSupply, now_ms: int) -> None:
        has_stale_groups = len(self.profile_groups) > 2 * len(state.providers) + FITTING_CACHE_MAX
        if state.policy is not self._policy or now_ms < self.as_of_ms or has_stale_groups:
            self._reset(state)
        self.as_of_ms = now_ms
        changed: Iterable[ProviderId] = state.changed_providers
        if not self.entries and state.providers:
            changed = state.providers
        for id_ in changed:
            self._update_entry(state.providers[id_], now_ms)
        state.changed_providers.clear()
        for due in list(self.due_index.due_until(now_ms)):
            self._update_entry(state.providers[ProviderId(due)], now_ms)

    def is_due(self, state: HasSupply, now_ms: int) -> bool:
        """Whether `refresh` has anything to do although no provider changed."""
        next_ms = self.due_index.earliest()
        is_other = state.policy is not self._policy or now_ms < self.as_of_ms
        return is_other or (next_ms is not None and next_ms <= now_ms)

    def _reset(self, state: HasSupply) -> None:
        """Forget everything, for example under another policy: all providers are indexed again."""
        self.entries, self.available_ids, self.available_entries = {}, [], []
        self.profile_groups, self.group_of, self.groups_with_capacity, self.prices = [], {}, set(), set()
        self.due_index, self._fitting_cache, self._order, self._order_seed = DueIndex(), {}, [], None
        self._policy, self.version = state.policy, self.version + 1

    def _update_entry(self, provider: Provider, now_ms: int) -> None:
        entry = self.entries.get(provider.id)
        if entry is None:
            entry = self.entries[provider.id] = IndexedProvider(provider)
        inputs, is_available, group = _index_inputs(provider), entry.is_available, entry.group
        if inputs != entry.index_inputs or (entry.due_ms is not None and now_ms >= entry.due_ms):
            assert self._policy is not None
            is_available = why_not_available(provider, self._policy, now_ms) is None
            group, cap = self._group_index(profile_of(provider, self._policy)), lease_cap(provider, self._policy)
            if (is_available and (group, True) != (entry.group, entry.is_available)) or cap > entry.cap:
                self.version += 1
            entry.index_inputs, entry.cap = inputs, cap
            self._schedule(entry, _due_ms(provider, self._policy, now_ms, is_available=is_available))
        entry.provider, entry.leases = provider, provider.leases
        has_capacity = is_available and entry.leases < entry.cap
        self._move_entry(entry, group, is_available=is_available, has_capacity=has_capacity)

    def _group_index(self, profile: Profile) -> int:
        group = self.group_of.get(profile)
        if group is None:
            group = self.group_of[profile] = len(self.profile_groups)
            self.profile_groups.append(ProfileGroup(profile))
            self.prices.update((profile.price, *(decode_map(profile.prices).values() if profile.prices else ())))
        return group

    def _move_entry(self, entry: IndexedProvider, group: int, *, is_available: bool, has_capacity: bool) -> None:
        id_ = entry.provider.id
        if (group, is_available, has_capacity) == (entry.group, entry.is_available, entry.has_capacity):
            return
        if entry.has_capacity:
            free = self.profile_groups[entry.group].with_capacity
            del free[id_]
            if not free:
                self.groups_with_capacity.discard(entry.group)
        if has_capacity:
            self.profile_groups[group].with_capacity[id_] = entry
            self.groups_with_capacity.add(group)
        if is_available != entry.is_available:
            self._order_seed, at = None, bisect_left(self.available_ids, id_)
            if is_available:
                self.available_ids.insert(at, id_)
                self.available_entries.insert(at, entry)
            else:
                del self.available_ids[at], self.available_entries[at]
        entry.group, entry.is_available, entry.has_capacity = group, is_available, has_capacity

    def _schedule(self, entry: IndexedProvider, due_ms: int | None) -> None:
        if entry.due_ms == due_ms:
            return
        if entry.due_ms is not None:
            self.due_index.remove(entry.provider.id, entry.due_ms)
        if due_ms is not None:
            self.due_index.schedule(entry.provider.id, due_ms)
        entry.due_ms = due_ms

    # ------------------------------------------------------------------------------------ reading

    def order(self, seed: Seed) -> None:
        """MAT-003: put the available providers in the order of the seed; once while they do not change."""
        if self._order_seed != seed:
            self._order = shuffle_in_place(seed, self.available_entries.copy())
            self._order_seed, self._has_positions = seed, False

    def fitting_groups(self, shape: JobShape) -> set[int]:
        """The groups with a profile that fits and a price that is paid; each group is checked once."""
        kind, requirements, pays = shape.kind, shape.requirements, shape.pays
        cached = self._fitting_cache.get((kind, requirements, pays))
        count, fitting = cached if cached is not None else (0, set())
        if cached is None or count < len(self.profile_groups):
            if len(self._fitting_cache) >= self.fitting_cache_max:
                self._fitting_cache.clear()
            for group in range(count, len(self.profile_groups)):
                profile = self.profile_groups[group].profile
                if price_of(profile, requirements) <= pays and why_not_able(profile, kind, requirements) is None:
                    fitting.add(group)
            self._fitting_cache[kind, requirements, pays] = len(self.profile_groups), fitting
        return fitting

    def has_capacity_for(self, shape: JobShape) -> bool:
        return not self.groups_with_capacity.isdisjoint(self.fitting_groups(shape))

    def with_capacity_for(self, shape: JobShape) -> Iterator[IndexedProvider]:
        """The providers that fit and have a free slot, in the order of the last seed."""
        fits = self.fitting_groups(shape)
        fewer, others = (
            (fits, self.groups_with_capacity)
            if len(fits) <= len(self.groups_with_capacity)
            else (self.groups_with_capacity, fits)
        )
        sorted_max, entries = len(self._order) // SORT_WHEN_ONE_IN, list[IndexedProvider]()
        for group in fewer:
            if group in others:
                entries += self.profile_groups[group].with_capacity.values()
                if len(entries) > sorted_max:
                    return (entry for entry in self._order if entry.has_capacity and entry.group in fits)
        if not self._has_positions:
            for position, entry in enumerate(self._order):
                entry.shuffle_position = position
            self._has_positions = True
        entries.sort(key=attrgetter("shuffle_position"))
        return iter(entries)


def _index_inputs(provider: Provider) -> tuple[object, ...]:
    can = (
        provider.capabilities,
        provider.region,
        provider.denied_by_list,
        provider.slots,
        provider.stake,
        provider.health_ppm,
        provider.price,
        provider.prices,
        provider.attestor,
    )
    until = (provider.attested_until_ms, provider.heartbeat_ms, provider.cooling_until_ms, provider.is_draining)
    return provider.status, can, until


def _due_ms(provider: Provider, policy: Policy, now_ms: int, *, is_available: bool) -> int | None:
    """When time alone changes its availability: a heartbeat becomes stale, an attestation or a cooldown ends."""
    rules = policy.provider
    if is_available:
        return min(
            provider.attested_until_ms + rules.attestation_skew_ms, provider.heartbeat_ms + rules.heartbeat_stale_ms
        )
    return provider.cooling_until_ms if provider.cooling_until_ms > now_ms else None
