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

    recent: dict[bytes, Claim] = {}
    recalled: dict[bytes, Claim] = {}
    fresh: list[tuple[bytes, Claim]] = []
    """Claims since the last batch was sealed: what the projection must write."""

    def find(self, key: bytes) -> Claim | None:
        """The claim on this key as far as memory knows; the engine recalls older ones before a decision."""
        return self.recent.get(key) or self.recalled.get(key)

    def add(self, key: bytes, number: EventNo, event: Event) -> None:
        self.recent[key] = claim = Claim(number, _checksum(event))
        self.fresh.append((key, claim))


def why_not_first(claims: Claims, key: bytes, event: Event) -> Decided | Refused | None:
    """None where the key is free; the first decision where it is the same again; a refusal where it is another."""
    known = claims.find(key)
    if known is None:
        return None
    if known.checksum == _checksum(event):
        return Decided((), since=known.event)
    return Refused(
        "ENG-005",
        f"this id was used for something else at event {known.event}",
        "a repeat must be the same in every field; take a new id for a new request",
        name="IdReused",
    )


def _checksum(event: Event) -> int:
    return crc32(_pack(event))
