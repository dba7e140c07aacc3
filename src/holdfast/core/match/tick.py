"""One tick of the matcher: which jobs are given to whom, in the order in which they are given (MAT-003 … MAT-005).

It decides over the line and the supply and changes neither. Groups that still have somebody are merged by priority,
and, where the starvation guard asks for the oldest, by age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import chain
from typing import Final, Protocol

from holdfast.core.match.merge import Merged
from holdfast.core.match.supply import FITS_KEPT_MAX, Seat, Supply
from holdfast.core.match.takers import CHOOSERS, Taker
from holdfast.core.policy import MatchOrder
from holdfast.core.queue.line import AGE_AT, ID_AT, Ask, Line
from holdfast.core.values import Kind, ProviderId, Seed, TaskId

KIND_AT: Final = {kind: at for at, kind in enumerate(Kind)}
"""Where in a taker's units a kind's are."""
NO_LIMIT: Final = 2**63


class Rules(Protocol):
    """What is known of providers and requesters besides the index."""

    def units_left(self, seat: Seat) -> list[int]:
        """What is left of a provider's quota in this epoch, by `KIND_AT`."""
        ...

    def is_open(self, ask: Ask) -> bool:
        """Whether jobs like this are given to anybody at all now."""
        ...

    def welcome(self, ask: Ask) -> Callable[[Seat], bool] | None:
        """What no profile tells: who is passed over for this, whom the job itself allows; None where all may."""
        ...

    def window(self, ask: Ask) -> tuple[int, int] | None:
        """How many jobs count against the requester now and how many may; None where nobody counts."""
        ...


class _Demand:
    """A group in this tick: where its jobs go as long as somebody takes them. It is the `Room` of its chooser."""

    __slots__ = ("_ask", "_tick", "at", "best", "count", "is_done", "may", "once", "sticky", "units")

    def __init__(self, tick: Tick, ask: Ask) -> None:
        self._tick, self._ask = tick, ask
        self.at, self.units = KIND_AT[ask.kind], ask.units
        self.is_done = False
        self.sticky: Taker | None = None
        """Who took the last one and takes the next, too, while it has a slot: so it is with the shuffled order."""
        self.count: list[int] | None = None
        """What counts against its requester, in one cell for all groups of that requester."""
        self.may = 0
        self.once = tick.holders.setdefault(ask.parent, set()) if ask.parent else None
        """LEA-009: who took a replica of this job in this tick takes no other; None where the jobs are no replicas."""
        self.best: Callable[[bytes], Taker | None] = self._first
        """Who takes a job; found out when the first is asked for, since most groups of many are not reached."""

    def _first(self, job_id: bytes) -> Taker | None:
        self.best = CHOOSERS[self._tick.order](self, self._tick.seed).best
        return self.best(job_id)

    def seats(self) -> Iterator[Seat]:
        ask = self._ask
        seats, is_welcome = self._tick.supply.free(ask.kind, ask.requirements), self._tick.rules.welcome(ask)
        return seats if is_welcome is None else filter(is_welcome, seats)

    def load_of(self, seat: Seat) -> int:
        taker = self._tick.takers.get(seat.provider.id)
        return seat.leases if taker is None else taker.load

    def taker_of(self, seat: Seat) -> Taker | None:
        taker = self._tick.takers.get(seat.provider.id)
        if taker is None:
            taker = self._tick.takers[seat.provider.id] = self._tick.taker(seat)
        if self.once is not None and seat.provider.id in self.once:
            return None
        has_room = taker.left > 0 and (taker.units is None or taker.units[self.at] >= self.units)
        return taker if has_room else None


class Tick:
    """One round of giving, over the line and the supply as they are now."""

    def __init__(
        self,
        line: Line,
        supply: Supply,
        rules: Rules,
        order: MatchOrder,
        seed: Seed,
    ) -> None:
        self.supply, self.rules, self.order, self.seed = supply, rules, order, seed
        self.takers: dict[ProviderId, Taker] = {}
        self.holders: dict[TaskId, set[ProviderId]] = {}
        self.places: list[bytes] = []
        """Of the jobs that were given, and"""
        self.by: list[Taker] = []
        """who took them."""
        self.guarded: set[bytes] = set()
        """Those that were given because they were the oldest (MAT-005)."""
        self._cursor = b""
        """Which place is next by priority."""
        largest = {KIND_AT[ask.kind]: 0 for ask in line.groups}
        for ask in line.groups:
            largest[KIND_AT[ask.kind]] = max(largest[KIND_AT[ask.kind]], ask.units)
        self._largest = tuple(largest.items())
        """How many units the largest job takes, by kind."""
        counts: dict[str, list[int]] = {}
        supply.kept_max = max(FITS_KEPT_MAX, 2 * len(line.groups))
        supply.order(seed)
        self._demands = [
            (group, demand) for ask, group in line.groups.items() if (demand := self._demand(ask, counts)) is not None
        ]

    def run(self, counter: int, every: int, limit: int = NO_LIMIT) -> Iterator[tuple[bytes, Seat]]:
        """Give until nobody takes anything more, or `limit` jobs were given.

        MAT-005: where the next assignment would be a multiple of `every`, it goes to the oldest job, not to the first.
        """
        limit = self._slots(limit)
        places, by, guarded, oldest, left = self.places, self.by, self.guarded, self._oldest(), 0
        merged = Merged([(group.places, demand) for group, demand in self._demands])
        for lot in merged:
            owner = merged.owner
            for place in lot:
                if not left:
                    self._cursor = place
                    if not (left := self._turn(counter, every, limit, oldest)):
                        return self._given()
                if place in guarded:
                    continue
                demand = owner[place]
                taker = demand.sticky
                if taker is None or not taker.left:
                    taker = self._best(demand, place)
                    if taker is None:
                        continue
                taker.left -= 1
                places.append(place)
                by.append(taker)
                left -= 1
        return self._given()

    def _slots(self, limit: int) -> int:
        """How many jobs can be given at all, one a slot: behind the last of them nobody need be asked any more."""
        supply, slots = self.supply, 0
        for seat in chain.from_iterable(supply.ranks[rank].free.values() for rank in supply.vacant):
            slots += seat.cap - seat.leases
            if slots >= limit:
                return limit
        return slots

    def _given(self) -> Iterator[tuple[bytes, Seat]]:
        return ((place, taker.seat) for place, taker in zip(self.places, self.by, strict=True))

    def _turn(self, counter: int, every: int, limit: int, oldest: Iterator[None]) -> int:
        """How many more can be given by priority now, after the oldest had their turn; 0: the tick is over."""
        while (room := limit - len(self.places)) > 0:
            if not every:
                return room
            if before_guard := every - 1 - (counter + len(self.places)) % every:
                return min(room, before_guard)
            if next(oldest, 0) == 0:
                return 0
        return 0

    def _best(self, demand: _Demand, place: bytes) -> Taker | None:
        """Who takes this job; what it costs besides a slot is taken from them at once."""
        taker = None
        if not demand.is_done and (demand.count is None or demand.count[0] < demand.may):
            taker = demand.best(place[ID_AT:])
        if taker is None:
            demand.is_done = True
            return None
        if demand.count is not None:
            demand.count[0] += 1
        if demand.once is not None:
            demand.once.add(taker.seat.provider.id)
        if taker.units is not None:
            taker.units[demand.at] -= demand.units
        elif demand.count is None and demand.once is None and self.order is MatchOrder.SHUFFLE:
            demand.sticky = taker
        return taker

    def _oldest(self) -> Iterator[None]:
        """MAT-005: gives the oldest job that somebody takes, each time it is asked for one more."""
        heads = []
        for number, (group, demand) in enumerate(self._demands):
            more = chain.from_iterable(group.ages.blocks)
            place = next(more)
            heads.append((place[AGE_AT:], number, place, more, demand))
        heapify(heads)
        while heads:
            cursor = self._cursor  # what stands before it, in a group that somebody still takes from, was given
            _, number, place, more, demand = heads[0]
            taker = self._best(demand, place) if place >= cursor else None
            after = None if demand.is_done else next((each for each in more if each >= cursor), None)
            if after is None:
                heappop(heads)
            else:
                heapreplace(heads, (after[AGE_AT:], number, after, more, demand))
            if taker is not None:
                taker.left -= 1
                self.places.append(place)
                self.by.append(taker)
                self.guarded.add(place)
                yield

    def taker(self, seat: Seat) -> Taker:
        """Units are counted only where so many jobs as it has slots for could take more than it has left."""
        taker, units = Taker(seat), self.rules.units_left(seat)
        for at, most in self._largest:
            if most * taker.left > units[at]:
                taker.units = units
        return taker

    def _demand(self, ask: Ask, counts: dict[str, list[int]]) -> _Demand | None:
        """None where nobody can be given such a job."""
        if not self.rules.is_open(ask) or not self.supply.has_free(ask.kind, ask.requirements):
            return None
        demand = _Demand(self, ask)
        if (window := self.rules.window(ask)) is not None:
            demand.count, demand.may = counts.setdefault(ask.caller, [window[0]]), window[1]
        return demand
