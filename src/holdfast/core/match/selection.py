"""Which provider gets the next job of a group (MAT-003): three orders, each called once per job.

Loads only grow within a tick. So a provider without pool for a job of a group has none for the rest of the group: each
order keeps its position among the candidates and only moves forward, and a group without candidates is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha3_256
from itertools import groupby
from typing import Final, Protocol

from holdfast.core.base.values import Seed
from holdfast.core.match.provider_index import IndexedProvider
from holdfast.core.match.seed_shuffle import MATCH_TAG
from holdfast.core.policy import MatchOrder


class Candidate:
    """A provider in this tick, with what is left after the jobs that it was assigned so far."""

    __slots__ = ("entry", "slots_left", "units_left")

    def __init__(self, entry: IndexedProvider) -> None:
        self.entry = entry
        self.slots_left = entry.cap - entry.leases
        self.units_left: list[int] | None = None
        """What is left of its quota, by kind; None where it cannot run out in this tick."""

    @property
    def load(self) -> int:
        return self.entry.cap - self.slots_left


class CandidatePool(Protocol):
    """The providers that could get a job of one group."""

    def entries(self) -> Iterator[IndexedProvider]:
        """In the shuffled order; each call starts at the first."""
        ...

    def load_of(self, entry: IndexedProvider) -> int:
        """Its leases, including those of this tick."""
        ...

    def candidate_of(self, entry: IndexedProvider) -> Candidate | None:
        """None where it has no pool for one more job of the group."""
        ...


class SelectionOrder(Protocol):
    """One order, for the jobs of one group."""

    def best(self, job_id: bytes) -> Candidate | None:
        """The provider for this job; None: none for it, nor for the other jobs of the group."""
        ...


class Shuffled:
    """The first in the shuffled order that fits."""

    __slots__ = ("_entries", "_entry", "_pool")

    def __init__(self, pool: CandidatePool, _: Seed) -> None:
        self._pool, self._entries = pool, pool.entries()
        self._entry = next(self._entries, None)

    def best(self, job_id: bytes) -> Candidate | None:
        while self._entry is not None:
            if (candidate := self._pool.candidate_of(self._entry)) is not None:
                return candidate
            self._entry = next(self._entries, None)
        return None


class LeastLoaded:
    """The one with the fewest leases, of equals the first in the shuffled order: level by level of load."""

    __slots__ = ("_entries", "_level", "_next", "_pool")

    def __init__(self, pool: CandidatePool, _: Seed) -> None:
        self._pool, self._entries = pool, pool.entries()
        self._level, self._next = 0, _NO_LEVEL

    def best(self, job_id: bytes) -> Candidate | None:
        load_of = self._pool.load_of
        while True:
            for entry in self._entries:
                load = load_of(entry)
                if load == self._level and (candidate := self._pool.candidate_of(entry)) is not None:
                    self._next = min(self._next, load + 1)  # its load after this job
                    return candidate
                if self._level < load < self._next:
                    self._next = load
            if self._next == _NO_LEVEL:
                return None
            self._level, self._next, self._entries = self._next, _NO_LEVEL, self._pool.entries()


_NO_LEVEL: Final = 2**63


class Scored:
    """The one with the highest stake times health, of equals the one whose hash with the job is lowest."""

    __slots__ = ("_equals", "_levels", "_pool", "_seed")

    def __init__(self, pool: CandidatePool, seed: Seed) -> None:
        self._pool, self._seed = pool, _framed(seed)
        ranked = sorted(pool.entries(), key=_score, reverse=True)
        self._levels = iter([list(equals) for _, equals in groupby(ranked, key=_score)])
        self._equals = next(self._levels, [])

    def best(self, job_id: bytes) -> Candidate | None:
        while self._equals:
            fit = [candidate for entry in self._equals if (candidate := self._pool.candidate_of(entry)) is not None]
            if fit:
                self._equals = [candidate.entry for candidate in fit]
                return fit[0] if len(fit) == 1 else min(fit, key=self._tie_break(job_id))
            self._equals = next(self._levels, [])
        return None

    def _tie_break(self, job_id: bytes) -> Callable[[Candidate], bytes]:
        """`H(MATCH_TAG, job_id, provider_id, seed)`, with the common prefix hashed once (CAN-001)."""
        prefix, end = sha3_256(_framed(MATCH_TAG.encode()) + _framed(job_id)), self._seed

        def of(candidate: Candidate) -> bytes:
            hasher = prefix.copy()
            hasher.update(_framed(candidate.entry.provider.id) + end)
            return hasher.digest()

        return of


def _score(entry: IndexedProvider) -> int:
    return entry.provider.stake * entry.provider.health_ppm


def _framed(field: bytes) -> bytes:
    return len(field).to_bytes(4, "big") + field


SELECTION_ORDERS: Final[dict[MatchOrder, Callable[[CandidatePool, Seed], SelectionOrder]]] = {
    MatchOrder.SHUFFLE: Shuffled,
    MatchOrder.SPREAD: LeastLoaded,
    MatchOrder.SCORED: Scored,
}
