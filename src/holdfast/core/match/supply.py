"""Who could take work now: an index beside the providers (MAT-002), moved by what changed and never looked through.

Providers that are alike but for their load are one `Rank` of seats; whether a job fits is asked once for each rank.
`state.stale` says who changed (`provider.apply.touch`), an agenda who changes by the time alone. The index is made
from the records: one that is empty fills itself when it is first looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

from holdfast.core.agenda import Agenda
from holdfast.core.match.chance import shuffled
from holdfast.core.match.fit import Profile, lease_cap, profile_of, why_not_able, why_not_listed
from holdfast.core.policy import Policy
from holdfast.core.provider.record import Provider
from holdfast.core.values import Kind, ProviderId, Seed

FITS_KEPT_MAX: Final = 4_096
"""How many answers to "which ranks fit this" are kept at least before all are forgotten."""
FEW: Final = 8
"""Where fewer than one in so many is free, the free ones are sorted; else the whole order is walked."""


class Rank(msgspec.Struct):
    """All seats of one profile; those with a free slot by provider."""

    profile: Profile
    free: dict[ProviderId, Seat] = {}


class Seat(msgspec.Struct, eq=False):
    """What the index knows of one provider."""

    provider: Provider
    told: tuple[object, ...] = ()
    """All of the provider that its place in the index depends on, besides its leases, as it was last looked at."""
    rank: int = -1
    is_listed: bool = False
    is_free: bool = False
    """Listed, with room for one lease at least."""
    leases: int = 0
    """As they were when it was last looked at."""
    cap: int = 0
    due_ms: int | None = None
    """When time alone changes whether it is listed."""
    place: int = 0
    """In the order that chance gave, once somebody asked for it."""


class Tried(NamedTuple):
    """What there was when a tick had nothing more to give: while it is the same, the next one would not either."""

    supply: int
    line: int
    given: int
    """Leases ever given, and"""
    ended: int
    """how many of them have ended: each gave a slot back."""
    epoch: int
    paused: tuple[str, ...]
    until_ms: int
    """When time alone can change it."""


class Ticked(NamedTuple):
    """What the last tick came to, for whoever counts."""

    jobs: int = 0
    guard_uses: int = 0
    """How many of them had their turn as the oldest (MAT-005)."""
    took: int = 0
    """By the watch that was handed in."""


class Stocked(Protocol):
    """What is needed of the state."""

    policy: Policy
    providers: dict[ProviderId, Provider]
    stale: set[ProviderId]
    """Who changed since the index was last brought up to date."""


class Supply(msgspec.Struct):
    """The index. `refresh` brings it to a moment; everything else is as of then."""

    seats: dict[ProviderId, Seat] = {}
    listed: list[ProviderId] = []
    """MAT-002: the snapshot of a tick, sorted by id, and"""
    listed_seats: list[Seat] = []
    """the same as seats."""
    ranks: list[Rank] = []
    rank_of: dict[Profile, int] = {}
    vacant: set[int] = msgspec.field(default_factory=set)
    """The ranks that have somebody free."""
    agenda: Agenda = msgspec.field(default_factory=Agenda)
    version: int = 0
    """Grows with every change, but of leases, by which somebody might take what nobody took before."""
    tried: Tried | None = None
    """What there was when the last tick that gave all it could had ended."""
    last: Ticked = Ticked()
    as_of_ms: int = 0
    kept_max: int = FITS_KEPT_MAX
    """How many answers are kept: twice as many as there are groups, so that a tick never asks for all of them anew."""
    _policy: Policy | None = None
    _fits: dict[tuple[Kind, bytes], tuple[int, set[int]]] = {}
    """Which of the first so many ranks fit what is asked."""
    _order: list[Seat] = []
    _order_of: Seed | None = None
    """The seed of the order at hand; None once somebody was listed or ceased to be."""
    _is_placed: bool = False
    """Whether the seats know their places in it."""

    # ------------------------------------------------------------------------------------ kept up to date

    def refresh(self, state: Stocked, now_ms: int) -> None:
        is_swollen = len(self.ranks) > 2 * len(state.providers) + FITS_KEPT_MAX
        if state.policy is not self._policy or now_ms < self.as_of_ms or is_swollen:
            self._forget(state)
        self.as_of_ms = now_ms
        changed: Iterable[ProviderId] = state.stale
        if not self.seats and state.providers:
            changed = state.providers
        for id_ in changed:
            self._look(id_, state.providers.get(id_), now_ms)
        state.stale.clear()
        for due in list(self.agenda.upto(now_ms)):
            self._look(ProviderId(due), state.providers.get(ProviderId(due)), now_ms)

    def is_due(self, state: Stocked, now_ms: int) -> bool:
        """Whether `refresh` has anything to do although nobody changed."""
        next_ms = self.agenda.next_ms()
        is_other = state.policy is not self._policy or now_ms < self.as_of_ms
        return is_other or (next_ms is not None and next_ms <= now_ms)

    def _forget(self, state: Stocked) -> None:
        """Another policy asks for other things: all are looked at anew."""
        self.seats, self.listed, self.listed_seats = {}, [], []
        self.ranks, self.rank_of, self.vacant = [], {}, set()
        self.agenda, self._fits, self._order, self._order_of = Agenda(), {}, [], None
        self._policy, self.version = state.policy, self.version + 1

    def _look(self, id_: ProviderId, provider: Provider | None, now_ms: int) -> None:
        seat = self.seats.get(id_)
        if provider is None:
            if seat is not None:
                self._place(seat, seat.rank, is_listed=False, is_free=False)
                self._due(seat, None)
                del self.seats[id_]
            return
        if seat is None:
            seat = self.seats[id_] = Seat(provider)
        told, is_listed, rank = _told(provider), seat.is_listed, seat.rank
        if told != seat.told or (seat.due_ms is not None and now_ms >= seat.due_ms):
            assert self._policy is not None
            is_listed = why_not_listed(provider, self._policy, now_ms) is None
            rank, cap = self._rank(profile_of(provider)), lease_cap(provider, self._policy)
            if (is_listed and (rank, True) != (seat.rank, seat.is_listed)) or cap > seat.cap:
                self.version += 1
            seat.told, seat.cap = told, cap
            self._due(seat, _due_ms(provider, self._policy, now_ms, is_listed=is_listed))
        seat.provider, seat.leases = provider, provider.leases
        self._place(seat, rank, is_listed=is_listed, is_free=is_listed and seat.leases < seat.cap)

    def _rank(self, profile: Profile) -> int:
        rank = self.rank_of.get(profile)
        if rank is None:
            rank = self.rank_of[profile] = len(self.ranks)
            self.ranks.append(Rank(profile))
        return rank

    def _place(self, seat: Seat, rank: int, *, is_listed: bool, is_free: bool) -> None:
        id_ = seat.provider.id
        if (rank, is_listed, is_free) == (seat.rank, seat.is_listed, seat.is_free):
            return
        if seat.is_free:
            free = self.ranks[seat.rank].free
            del free[id_]
            if not free:
                self.vacant.discard(seat.rank)
        if is_free:
            self.ranks[rank].free[id_] = seat
            self.vacant.add(rank)
        if is_listed != seat.is_listed:
            self._order_of, at = None, bisect_left(self.listed, id_)
            if is_listed:
                self.listed.insert(at, id_)
                self.listed_seats.insert(at, seat)
            else:
                del self.listed[at], self.listed_seats[at]
        seat.rank, seat.is_listed, seat.is_free = rank, is_listed, is_free

    def _due(self, seat: Seat, due_ms: int | None) -> None:
        if seat.due_ms == due_ms:
            return
        if seat.due_ms is not None:
            self.agenda.remove(seat.provider.id, seat.due_ms)
        if due_ms is not None:
            self.agenda.put(seat.provider.id, due_ms)
        seat.due_ms = due_ms

    # ------------------------------------------------------------------------------------ asked

    def order(self, seed: Seed) -> list[Seat]:
        """MAT-003: those that are listed, as the seed shuffles them; made once for a seed and a snapshot."""
        if self._order_of != seed:
            self._order = shuffled(seed, self.listed_seats.copy())
            self._order_of, self._is_placed = seed, False
        return self._order

    def fits(self, kind: Kind, requirements: bytes) -> set[int]:
        """The ranks that can do what is asked; each is asked once."""
        known = self._fits.get((kind, requirements))
        count, found = known if known is not None else (0, set())
        if known is None or count < len(self.ranks):
            if len(self._fits) >= self.kept_max:
                self._fits.clear()
            for rank in range(count, len(self.ranks)):
                if why_not_able(self.ranks[rank].profile, kind, requirements) is None:
                    found.add(rank)
            self._fits[kind, requirements] = len(self.ranks), found
        return found

    def has_free(self, kind: Kind, requirements: bytes) -> bool:
        return not self.vacant.isdisjoint(self.fits(kind, requirements))

    def free(self, kind: Kind, requirements: bytes) -> Iterator[Seat]:
        """Who can do what is asked and has a free slot, in the order of the last seed."""
        fits = self.fits(kind, requirements)
        fewer, others = (fits, self.vacant) if len(fits) <= len(self.vacant) else (self.vacant, fits)
        most, some = len(self._order) // FEW, list[Seat]()
        for rank in fewer:
            if rank in others:
                some += self.ranks[rank].free.values()
                if len(some) > most:
                    return (seat for seat in self._order if seat.is_free and seat.rank in fits)
        some.sort(key=self._places())
        return iter(some)

    def _places(self) -> Callable[[Seat], int]:
        if not self._is_placed:
            for place, seat in enumerate(self._order):
                seat.place = place
            self._is_placed = True
        return _place


def _place(seat: Seat) -> int:
    return seat.place


def _told(provider: Provider) -> tuple[object, ...]:
    can = (provider.capabilities, provider.region, provider.barred, provider.slots, provider.stake, provider.health_ppm)
    until = (provider.attested_until_ms, provider.heartbeat_ms, provider.cooling_until_ms, provider.is_draining)
    return provider.status, can, until


def _due_ms(provider: Provider, policy: Policy, now_ms: int, *, is_listed: bool) -> int | None:
    """When to look again although nothing happened: a heartbeat grows old, an attestation ends, a cooldown is over."""
    rules = policy.provider
    if is_listed:
        return min(
            provider.attested_until_ms + rules.attestation_skew_ms, provider.heartbeat_ms + rules.heartbeat_stale_ms
        )
    return provider.cooling_until_ms if provider.cooling_until_ms > now_ms else None
