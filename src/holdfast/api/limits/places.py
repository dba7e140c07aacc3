"""Places for connections (SEC-001): a share for each address, and a reserve that only clients with a key can keep.

A connection begins as anonymous. A valid key moves it into the keyed share. Where all anonymous places are taken, new
connections are still let in on probation, out of the reserve: the first answer ends those that have shown no key, and a
newer connection takes the place of the oldest one on probation. So thousands of idle sockets shut out no client with a
key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from holdfast.core.base.errors import Refused

RESERVED_PART: Final = 4
"""One place of four is reserved for clients with a key."""


class Share(Enum):
    """Out of which share a place is."""

    ANONYMOUS = auto()
    PROBATION = auto()
    KEYED = auto()


class ConnectionPlace:
    """The place of one connection."""

    __slots__ = ("_places", "client", "close", "key", "share")

    def __init__(self, places: ConnectionPlaces, client: str, share: Share, close: Callable[[], None]) -> None:
        self._places, self.client, self.share, self.close = places, client, share, close
        self.key = ""

    def on_key(self, key: str) -> Refused | None:
        """A valid key was shown: from now on the place is in the keyed share, and the address has one more."""
        return None if self.share is Share.KEYED else self._places.move(self, key)

    @property
    def is_on_probation(self) -> bool:
        return self.share is Share.PROBATION

    def leave(self) -> None:
        self._places.leave(self)


class ConnectionPlaces:
    """All places of a server."""

    def __init__(self, places_max: int, address_max: int, key_max: int, reserved: int) -> None:
        self._max, self._address_max, self._key_max, self._reserved = places_max, address_max, key_max, reserved
        self.taken: dict[Share, dict[ConnectionPlace, None]] = {share: {} for share in Share}
        self._of_address: Counter[str] = Counter()
        self._of_key: Counter[str] = Counter()

    def enter(self, client: str, close: Callable[[], None], *, is_proxy: bool = False) -> ConnectionPlace | Refused:
        """A place for a new connection, or why there is none. A trusted proxy stands for many clients."""
        anonymous = self.taken[Share.ANONYMOUS]
        is_share_full = not is_proxy and self._of_address[client] >= self._address_max
        if not is_share_full and len(anonymous) < self._max - self._reserved and len(self) < self._max:
            return self._take(ConnectionPlace(self, client, Share.ANONYMOUS, close))
        if not self._reserved:
            return _FULL
        probation = self.taken[Share.PROBATION]
        if len(probation) >= self._reserved or len(self) >= self._max:
            if not probation:
                return _FULL
            oldest = next(iter(probation))
            oldest.leave()
            oldest.close()
        return self._take(ConnectionPlace(self, client, Share.PROBATION, close))

    def __len__(self) -> int:
        return sum(map(len, self.taken.values()))

    def move(self, place: ConnectionPlace, key: str) -> Refused | None:
        if self._of_key[key] >= self._key_max:
            return Refused("SEC-001", f"{self._key_max} connections of this key are open", "close some", "RateLimited")
        if place not in self.taken[place.share]:
            return None  # it has left
        self.leave(place)
        place.share, place.key = Share.KEYED, key
        self._take(place)
        return None

    def _take(self, place: ConnectionPlace) -> ConnectionPlace:
        self.taken[place.share][place] = None
        if place.share is Share.KEYED:
            self._of_key[place.key] += 1
        elif place.share is Share.ANONYMOUS:
            self._of_address[place.client] += 1
        return place

    def leave(self, place: ConnectionPlace) -> None:
        """Free the place; it may be called again."""
        if self.taken[place.share].pop(place, place) is place:
            return
        counts, name = (self._of_key, place.key) if place.share is Share.KEYED else (self._of_address, place.client)
        if place.share is not Share.PROBATION:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]


_FULL = Refused("SEC-001", "all places for connections are taken", "close some, or try again later", "RateLimited")
