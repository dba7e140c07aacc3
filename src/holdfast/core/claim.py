"""What must be unique over history (ENG-005): an id is claimed once, by one event, for one thing, for ever."""

from __future__ import annotations

from zlib import crc32

import msgspec

from holdfast.core.event import Decided, Event
from holdfast.core.refusal import Refused
from holdfast.core.values import EventNo

_pack = msgspec.msgpack.Encoder().encode


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Which event claimed an id, and a checksum of that event.

    The checksum tells a repeat from another use of the same id; it guards against mistakes, not against malice: an
    id is its caller's own.
    """

    event: EventNo
    checksum: int


class Claims(msgspec.Struct, gc=False):
    """Ids claimed since the last checkpoint of the tables, and older ones that the engine has looked up again."""

    recent: dict[bytes, tuple[EventNo, Event]] = {}
    recalled: dict[bytes, Claim] = {}
    fresh: list[bytes] = []
    """Keys claimed since the last batch was sealed: what the projection must write."""

    is_kept: bool = True
    """False while old batches are folded again whose claims the tables have already."""

    def add(self, key: bytes, number: EventNo, event: Event) -> None:
        if self.is_kept:
            self.recent[key] = (number, event)
            self.fresh.append(key)

    def knows(self, key: bytes) -> bool:
        """Whether memory has this claim; the engine recalls an older one before the decision."""
        return key in self.recent or key in self.recalled

    def event_of(self, key: bytes) -> EventNo | None:
        """Which event claimed this key, as far as memory knows."""
        if (found := self.recent.get(key)) is not None:
            return found[0]
        return old.event if (old := self.recalled.get(key)) is not None else None

    def take_fresh(self) -> list[tuple[bytes, Claim]]:
        """The new claims as the tables keep them, once."""
        taken, last = list[tuple[bytes, Claim]](), None
        for key in self.fresh:
            number, event = self.recent[key]
            if event is not last:  # an event that claims two ids claims them one after the other: it is packed once
                last, claim = event, Claim(number, _checksum(event))
            taken.append((key, claim))
        self.fresh.clear()
        return taken

    def forget(self) -> None:
        """The tables have them all."""
        self.recent.clear()
        self.fresh.clear()


def why_not_first(claims: Claims, key: bytes, event: Event) -> Decided | Refused | None:
    """None where the key is free; the first decision where it is the same again; a refusal where it is another."""
    if (known := claims.recent.get(key)) is not None:
        number, is_same = known[0], known[1] == event
    elif (old := claims.recalled.get(key)) is not None:
        number, is_same = old.event, old.checksum == _checksum(event)
    else:
        return None
    if is_same:
        return Decided((), since=number)
    return Refused(
        "ENG-005",
        f"this id was used for something else at event {number}",
        "a repeat must be the same in every field; take a new id for a new request",
        name="IdReused",
    )


def _checksum(event: Event) -> int:
    return crc32(_pack(event))
