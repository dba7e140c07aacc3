"""One tick of the matcher: which jobs are assigned to which providers, in order (MAT-003 … MAT-005).

It reads the ready queue and the provider index and changes neither. Groups that still have candidates are merged by
priority and, for the starvation guard, by age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import chain
from typing import Final, Protocol

from holdfast.core.base.values import Kind, ProviderId, Seed, TaskId
from holdfast.core.match.merge import BatchedMerge
from holdfast.core.match.provider_index import FITTING_CACHE_MAX, IndexedProvider, ProviderIndex
from holdfast.core.match.selection import SELECTION_ORDERS, Candidate, SelectionOrder
from holdfast.core.policy import MatchOrder
from holdfast.core.queue.ready_queue import AGE_OFFSET, ID_OFFSET, JobGroup, JobShape, ReadyQueue

KIND_INDEX: Final = {kind: at for at, kind in enumerate(Kind)}
"""The index of each kind in `Candidate.units_left`."""
NO_LIMIT: Final = 2**63


class MatchRules(Protocol):
    """What is known of providers and requesters besides the index."""

    def units_left(self, entry: IndexedProvider) -> list[int]:
        """What is left of a provider's quota in this epoch, by `KIND_INDEX`."""
        ...

    def is_open(self, shape: JobShape) -> bool:
        """Whether jobs of this shape are assigned at all now."""
        ...

    def provider_filter(self, shape: JobShape) -> Callable[[IndexedProvider], bool] | None:
        """The filters outside of the profile: denials of the class, lists of the job; None where all providers pass."""
        ...

    def window(self, shape: JobShape) -> tuple[int, int] | None:
        """How many jobs count in the requester's window now, and the limit; None where policy has no window."""
        ...


class _GroupPool:
    """The `CandidatePool` of a job group in this tick."""

    __slots__ = ("_shape", "_tick", "kind_index", "replica_holders", "units")

    def __init__(self, tick: Tick, shape: JobShape) -> None:
        self._tick, self._shape = tick, shape
        self.kind_index, self.units = KIND_INDEX[shape.kind], shape.units
        self.replica_holders = tick.holders.setdefault(shape.parent, set()) if shape.parent else None
        """LEA-009: who got a replica of this job in this tick and gets no other; None for other jobs."""

    def selection(self) -> SelectionOrder:
        return SELECTION_ORDERS[self._tick.order](self, self._tick.seed)

    def entries(self) -> Iterator[IndexedProvider]:
        shape = self._shape
        entries = self._tick.provider_index.with_capacity_for(shape)
        is_accepted = self._tick.rules.provider_filter(shape)
        return entries if is_accepted is None else filter(is_accepted, entries)

    def load_of(self, entry: IndexedProvider) -> int:
        candidate = self._tick.candidates.get(entry.provider.id)
        return entry.leases if candidate is None else candidate.load

    def candidate_of(self, entry: IndexedProvider) -> Candidate | None:
        candidate = self._tick.candidates.get(entry.provider.id)
        if candidate is None:
            candidate = self._tick.candidates[entry.provider.id] = self._tick.candidate(entry)
        if self.replica_holders is not None and entry.provider.id in self.replica_holders:
            return None
        has_room = candidate.slots_left > 0 and (
            candidate.units_left is None or candidate.units_left[self.kind_index] >= self.units
        )
        return candidate if has_room else None


class _Demand:
    """A job group in this tick, until it has no candidates left."""

    __slots__ = ("_selection", "is_done", "last_taker", "pool", "window_count", "window_max")

    def __init__(self, pool: _GroupPool) -> None:
        self.pool = pool
        self.is_done = False
        self.last_taker: Candidate | None = None
        """With the shuffled order: who got the last job, and gets the next one while it has a free slot."""
        self.window_count: list[int] | None = None
        """The count of its requester's window, shared by all groups of that requester."""
        self.window_max = 0
        self._selection: SelectionOrder | None = None
        """Made for the first job, since most of many groups are not reached."""

    def best(self, job_id: bytes) -> Candidate | None:
        if self._selection is None:
            self._selection = self.pool.selection()
        return self._selection.best(job_id)


class Tick:
    """One round of assignments, over the ready queue and the provider index as they are now.

    Job groups refer to it and it does not refer to them: in a cycle, every tick would wait for the garbage collector.
    """

    def __init__(
        self,
        ready_queue: ReadyQueue,
        provider_index: ProviderIndex,
        rules: MatchRules,
        order: MatchOrder,
        seed: Seed,
    ) -> None:
        self.provider_index, self.rules, self.order, self.seed = provider_index, rules, order, seed
        self.candidates: dict[ProviderId, Candidate] = {}
        self.holders: dict[TaskId, set[ProviderId]] = {}
        self.sort_keys: list[bytes] = []
        """Of the assigned jobs."""
        self.chosen: list[Candidate] = []
        """Their providers, in the same order."""
        self.starvation_picks: set[bytes] = set()
        """The jobs that were assigned because they were the oldest (MAT-005)."""
        self._cursor = b""
        """The next sort key by priority."""
        largest: dict[int, int] = {}
        for shape in ready_queue.groups:
            at = KIND_INDEX[shape.kind]
            largest[at] = max(largest.get(at, 0), shape.units)
        self._largest = tuple(largest.items())
        """How many units the largest job takes, by kind."""
        self._groups = ready_queue.groups
        provider_index.fitting_cache_max = max(FITTING_CACHE_MAX, 2 * len(ready_queue.groups))
        provider_index.order(seed)

    def run(
        self, counter: int, interleave_every: int, limit: int = NO_LIMIT
    ) -> Iterator[tuple[bytes, IndexedProvider]]:
        """Assign until no provider has room, or `limit` jobs were assigned.

        MAT-005: where the number of the assignment is a multiple of `interleave_every`, it goes to the oldest job, not
        to the first.
        """
        limit, demands = self._slot_limit(limit), self._demands()
        sort_keys, chosen, picked = self.sort_keys, self.chosen, self.starvation_picks
        oldest, left = self._pick_oldest(demands), 0
        merged = BatchedMerge([(group.by_priority, demand) for group, demand in demands])
        for run_ in merged:
            owner = merged.owner
            for sort_key in run_:
                if not left:
                    self._cursor = sort_key
                    if not (left := self._next_turn(counter, interleave_every, limit, oldest)):
                        return self._assignments()
                if sort_key in picked:
                    continue
                demand = owner[sort_key]
                candidate = demand.last_taker
                if candidate is None or not candidate.slots_left:
                    candidate = self._take_candidate(demand, sort_key)
                    if candidate is None:
                        continue
                candidate.slots_left -= 1
                sort_keys.append(sort_key)
                chosen.append(candidate)
                left -= 1
        return self._assignments()

    def _slot_limit(self, limit: int) -> int:
        """How many jobs can be assigned at all, one per free slot: beyond them no provider need be checked."""
        index, slots = self.provider_index, 0
        for entry in chain.from_iterable(
            index.profile_groups[group].with_capacity.values() for group in index.groups_with_capacity
        ):
            slots += entry.cap - entry.leases
            if slots >= limit:
                return limit
        return slots

    def _assignments(self) -> Iterator[tuple[bytes, IndexedProvider]]:
        return ((sort_key, candidate.entry) for sort_key, candidate in zip(self.sort_keys, self.chosen, strict=True))

    def _next_turn(self, counter: int, every: int, limit: int, oldest: Iterator[None]) -> int:
        """How many jobs can be assigned by priority now, after the oldest had their turn; 0: the tick is over."""
        while (room := limit - len(self.sort_keys)) > 0:
            if not every:
                return room
            if before_guard := every - 1 - (counter + len(self.sort_keys)) % every:
                return min(room, before_guard)
            if next(oldest, 0) == 0:
                return 0
        return 0

    def _take_candidate(self, demand: _Demand, sort_key: bytes) -> Candidate | None:
        """The provider for this job; units and window count are reduced here, the slot by the caller."""
        candidate = None
        if not demand.is_done and (demand.window_count is None or demand.window_count[0] < demand.window_max):
            candidate = demand.best(sort_key[ID_OFFSET:])
        if candidate is None:
            demand.is_done = True
            return None
        if demand.window_count is not None:
            demand.window_count[0] += 1
        pool = demand.pool
        if pool.replica_holders is not None:
            pool.replica_holders.add(candidate.entry.provider.id)
        if candidate.units_left is not None:
            candidate.units_left[pool.kind_index] -= pool.units
        elif demand.window_count is None and pool.replica_holders is None and self.order is MatchOrder.SHUFFLE:
            demand.last_taker = candidate
        return candidate

    def _pick_oldest(self, demands: list[tuple[JobGroup, _Demand]]) -> Iterator[None]:
        """MAT-005: each step assigns the oldest job that has a candidate."""
        heads = []
        for number, (group, demand) in enumerate(demands):
            more = chain.from_iterable(group.by_age.blocks)
            sort_key = next(more)
            heads.append((sort_key[AGE_OFFSET:], number, sort_key, more, demand))
        heapify(heads)
        while heads:
            cursor = self._cursor  # what comes before it, in a group with candidates, is assigned already
            _, number, sort_key, more, demand = heads[0]
            candidate = self._take_candidate(demand, sort_key) if sort_key >= cursor else None
            after = None if demand.is_done else next((key for key in more if key >= cursor), None)
            if after is None:
                heappop(heads)
            else:
                heapreplace(heads, (after[AGE_OFFSET:], number, after, more, demand))
            if candidate is not None:
                candidate.slots_left -= 1
                self.sort_keys.append(sort_key)
                self.chosen.append(candidate)
                self.starvation_picks.add(sort_key)
                yield

    def candidate(self, entry: IndexedProvider) -> Candidate:
        """Units are counted only where filling all its slots could need more than are left."""
        candidate, units = Candidate(entry), self.rules.units_left(entry)
        for at, most in self._largest:
            if most * candidate.slots_left > units[at]:
                candidate.units_left = units
        return candidate

    def _demands(self) -> list[tuple[JobGroup, _Demand]]:
        """The groups with jobs that some provider can get."""
        counts: dict[str, list[int]] = {}
        return [
            (group, self._demand(shape, counts))
            for shape, group in self._groups.items()
            if self.rules.is_open(shape) and self.provider_index.has_capacity_for(shape)
        ]

    def _demand(self, shape: JobShape, counts: dict[str, list[int]]) -> _Demand:
        demand = _Demand(_GroupPool(self, shape))
        if (window := self.rules.window(shape)) is not None:
            demand.window_count, demand.window_max = counts.setdefault(shape.caller, [window[0]]), window[1]
        return demand
