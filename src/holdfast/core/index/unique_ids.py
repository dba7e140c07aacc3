"""Ids that are unique over all history (ENG-005): an id is claimed once, by one event, and stays claimed."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.values import EventNo

_pack = msgspec.msgpack.Encoder().encode


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Which event claimed an id, and a checksum of that event.

    The checksum tells a repeat from another use of the same id. It guards against mistakes, not against malice: a
    caller can only harm its own ids.
    """

    event: EventNo
    checksum: int


def _stored_nowhere(_key: bytes) -> bool:
    return False


class Claims(msgspec.Struct, gc=False):
    """Ids claimed since the last checkpoint of the tables, and older ones that the engine has loaded."""

    recent: dict[bytes, tuple[EventNo, Event]] = {}
    older: dict[bytes, tuple[EventNo, Event]] = {}
    """Recent ones of some time ago: they leave memory together, once the tables hold them all."""
    loaded: dict[bytes, Claim] = {}
    may_be_stored: Callable[[bytes], bool] = _stored_nowhere
    """Whether the tables may have a claim that memory does not; set by the engine, which knows their prefixes."""
    absent: tuple[bytes, ...] = ()
    """Keys that the tables have just been found not to have, for the decision that waited for them."""
    is_recording: bool = True
    """False while batches are folded again that have their claims in the tables already."""

    def add(self, key: bytes, number: EventNo, event: Event) -> None:
        if self.is_recording:
            self.recent[key] = (number, event)

    def is_known(self, key: bytes) -> bool:
        """Whether memory has this claim; the engine loads an older one before the decision."""
        return key in self.recent or key in self.older or key in self.loaded

    def lacking(self, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Those that only the tables may know: they must be loaded before anything is decided on them."""
        stored = self.may_be_stored
        return tuple([key for key in keys if stored(key) and key not in self.absent and not self.is_known(key)])

    def event_of(self, key: bytes) -> EventNo | None:
        """The event that claimed this key, None where memory has no such claim."""
        if (recent := self.find_recent(key)) is not None:
            return recent[0]
        return claim.event if (claim := self.loaded.get(key)) is not None else None

    def find_recent(self, key: bytes) -> tuple[EventNo, Event] | None:
        """The event that claimed this key, and its number, where memory still has it."""
        return self.recent.get(key) or self.older.get(key)

    def drain_recent(self) -> list[tuple[bytes, Claim]]:
        """The recent claims as the tables store them, in order; memory has none of them afterwards."""
        drained, last = list[tuple[bytes, Claim]](), None
        for key, (number, event) in self.recent.items():
            if event is not last:  # an event that claims two ids claims them one after the other: it is packed once
                last, claim = event, Claim(number, _checksum(event))
            drained.append((key, claim))
        self.recent.clear()
        return drained


def check_unique(claims: Claims, key: bytes, event: Event) -> Decided | Refused | None:
    """None where the key is free; the first decision for a repeat; a refusal where the key was used otherwise."""
    if (known := claims.find_recent(key)) is not None:
        number, is_same = known[0], known[1] == event
    elif (old := claims.loaded.get(key)) is not None:
        number, is_same = old.event, old.checksum == _checksum(event)
    else:
        return None
    if is_same:
        return Decided((), repeat_of=number)
    return Refused(
        "ENG-005",
        f"this id was used for something else at event {number}",
        "a repeat must be the same in every field; take a new id for a new request",
        name="IdReused",
    )


def _checksum(event: Event) -> int:
    return crc32(_pack(event))
