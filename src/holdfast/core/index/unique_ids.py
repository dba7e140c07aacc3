"""Ids that are unique over all history (ENG-005): an id is claimed once, by one event, and stays claimed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final
from zlib import crc32

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.values import EventNo

_pack = msgspec.msgpack.Encoder().encode


HASHED: Final = frozenset(b"tjwnrcqi")
"""Keys that are a letter and a hash. All others have ids that clients choose."""
HASHED_BYTES: Final = 17
_BYTES: Final = tuple(bytes((value,)) for value in range(256))


def claim_id(key: bytes) -> bytes:
    """ENG-005: the 16 bytes of a hash that stand for a key in the tables."""
    if key[0] in HASHED and len(key) >= HASHED_BYTES:
        return _BYTES[key[0] ^ key[1]] + key[2:17]
    return blake2b(key, digest_size=16).digest()


def claim_number(key: bytes) -> int:
    """The first 8 bytes of its claim id: what memory keeps of a claim that the tables hold."""
    return int.from_bytes(claim_id(key)[:8], "big")


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Which event claimed an id; where the id does not cover what it was claimed for, a checksum of that.

    The checksum tells a repeat from another use of the same id. It guards against mistakes, not against malice: a
    caller can only harm its own ids.
    """

    event: EventNo
    checksum: int = 0
    until_ms: int = 0
    """Until when it counts; 0: for ever."""


Content = Event | Claim | None
"""What an id was claimed for; None where the id covers it. The claim itself where it counts for a while only."""


class Claims(msgspec.Struct, gc=False):
    """Ids claimed since the last checkpoint of the tables, and older ones that the engine has loaded."""

    recent: dict[bytes, tuple[EventNo, Content]] = {}
    older: dict[bytes, tuple[EventNo, Content]] = {}
    """Recent ones of some time ago: they leave memory together, once the tables hold them all."""
    loaded: dict[bytes, Claim] = {}
    may_be_stored: Callable[[bytes], bool] = lambda _key: False
    """Whether the tables may have a claim that memory does not; set by the engine, which knows their prefixes."""
    absent: tuple[bytes, ...] = ()
    """Keys that the tables have just been found not to have, for the decision that waited for them."""
    is_recording: bool = True
    """False while batches are folded again that have their claims in the tables already."""

    def add(self, key: bytes, number: EventNo, content: Content = None) -> None:
        if self.is_recording:
            self.recent[key] = (number, content)

    def add_temporary(self, key: bytes, claim: Claim) -> None:
        """Claim a key whose earlier claim has expired, if there was one (JOB-002)."""
        self.loaded.pop(key, None)
        self.add(key, claim.event, claim)

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

    def find_recent(self, key: bytes) -> tuple[EventNo, Content] | None:
        """The number of the event that claimed this key, and what for, where memory still has it."""
        return self.recent.get(key) or self.older.get(key)

    def find(self, key: bytes) -> Claim | None:
        """The claim as the tables store it, where memory has it."""
        if (recent := self.find_recent(key)) is not None:
            return _stored(*recent)
        return self.loaded.get(key)

    def drain_recent(self) -> list[tuple[bytes, Claim]]:
        """The recent claims as the tables store them, in order; memory has none of them afterwards."""
        drained = [(key, _stored(*recent)) for key, recent in self.recent.items()]
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


def _stored(number: EventNo, content: Content) -> Claim:
    if content is None:
        return Claim(number)
    return content if isinstance(content, Claim) else Claim(number, _checksum(content))


def _checksum(event: Event) -> int:
    return crc32(_pack(event))
