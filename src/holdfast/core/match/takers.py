"""Who takes the next job of a group (MAT-003): three orders, each asked as often as there are jobs.

Loads only grow within a tick. So whoever has no room for a job of a group has none for the rest of it: each order
keeps its place among those that fit and only moves forward, and a group that has nobody left is done with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha3_256
from itertools import groupby
from typing import Final, Protocol

from holdfast.core.match.chance import MATCH_TAG
from holdfast.core.match.supply import Seat
from holdfast.core.policy import MatchOrder
from holdfast.core.values import Seed


class Taker:
    """A provider as it stands in this tick, after what it was given so far."""

    __slots__ = ("left", "seat", "units")

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.left = seat.cap - seat.leases
        self.units: list[int] | None = None
        """What is left of its quota, by kind; None where it cannot run out in this tick."""

    @property
    def load(self) -> int:
        return self.seat.cap - self.left


class Room(Protocol):
    """Those that could take a job of one group, as the tick knows them."""

    def seats(self) -> Iterator[Seat]:
        """In the shuffled order, from the first, as often as asked."""
        ...

    def load_of(self, seat: Seat) -> int:
        """Its leases, with those given in this tick."""
        ...

    def taker_of(self, seat: Seat) -> Taker | None:
        """None where it has no room for one more job of the group."""
        ...


class Chooser(Protocol):
    """One order, for the jobs of one group."""

    def best(self, job_id: bytes) -> Taker | None:
        """Who gets this job; None: nobody, and no other job of the group either."""
        ...


class Shuffled:
    """The first in the shuffled order that fits."""

    __slots__ = ("_room", "_seats", "_taker")

    def __init__(self, room: Room, _: Seed) -> None:
        self._room, self._seats = room, room.seats()
        self._taker: Taker | None = None

    def best(self, job_id: bytes) -> Taker | None:
        taker_of = self._room.taker_of
        if self._taker is not None and (taker := taker_of(self._taker.seat)) is not None:
            return taker
        for seat in self._seats:
            if (taker := taker_of(seat)) is not None:
                self._taker = taker
                return taker
        self._taker = None
        return None


class Spread:
    """The one with the fewest leases, of equals the first in the shuffled order: level by level of load."""

    __slots__ = ("_level", "_next", "_room", "_seats")

    def __init__(self, room: Room, _: Seed) -> None:
        self._room, self._seats = room, room.seats()
        self._level, self._next = 0, _NO_LEVEL

    def best(self, job_id: bytes) -> Taker | None:
        load_of = self._room.load_of
        while True:
            for seat in self._seats:
                load = load_of(seat)
                if load == self._level and (taker := self._room.taker_of(seat)) is not None:
                    self._next = min(self._next, load + 1)  # given this one, it stands there
                    return taker
                if self._level < load < self._next:
                    self._next = load
            if self._next == _NO_LEVEL:
                return None
            self._level, self._next, self._seats = self._next, _NO_LEVEL, self._room.seats()


_NO_LEVEL: Final = 2**63


class Scored:
    """The one with the highest stake times health, of equals the one whose hash with the job is lowest."""

    __slots__ = ("_equals", "_levels", "_room", "_seed")

    def __init__(self, room: Room, seed: Seed) -> None:
        self._room, self._seed = room, _framed(seed)
        ranked = sorted(room.seats(), key=_score, reverse=True)
        self._levels = iter([list(some) for _, some in groupby(ranked, key=_score)])
        self._equals = next(self._levels, [])

    def best(self, job_id: bytes) -> Taker | None:
        while self._equals:
            fit = [taker for seat in self._equals if (taker := self._room.taker_of(seat)) is not None]
            if fit:
                self._equals = [taker.seat for taker in fit]
                return fit[0] if len(fit) == 1 else min(fit, key=self._pair(job_id))
            self._equals = next(self._levels, [])
        return None

    def _pair(self, job_id: bytes) -> Callable[[Taker], bytes]:
        """`H(MATCH_TAG, job_id, provider_id, seed)`, with what all providers share hashed once (CAN-001)."""
        begun, end = sha3_256(_framed(MATCH_TAG.encode()) + _framed(job_id)), self._seed

        def of(taker: Taker) -> bytes:
            hasher = begun.copy()
            hasher.update(_framed(taker.seat.provider.id) + end)
            return hasher.digest()

        return of


def _score(seat: Seat) -> int:
    return seat.provider.stake * seat.provider.health_ppm


def _framed(field: bytes) -> bytes:
    return len(field).to_bytes(4, "big") + field


CHOOSERS: Final[dict[MatchOrder, Callable[[Room, Seed], Chooser]]] = {
    MatchOrder.SHUFFLE: Shuffled,
    MatchOrder.SPREAD: Spread,
    MatchOrder.SCORED: Scored,
}
