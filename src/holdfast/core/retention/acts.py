"""What the collector asks for and what then happened: three passes, and that the bytes are really gone."""

from __future__ import annotations

import msgspec

from holdfast.core.event import Event
from holdfast.core.retention.books import Tombstone
from holdfast.core.values import Digest, EventNo, Height

Left = tuple[EventNo, str]
"""A result that is left behind, and why."""


class Lot(msgspec.Struct, frozen=True, gc=False):
    """Which results a step of a pass looked at: those after where the pass stands, up to `until`."""

    as_of: EventNo
    """The rows that were read show every event up to this one."""
    watermark: Height
    """None of them was resolved above this height."""
    until: EventNo
    left: tuple[Left, ...] = ()
    """Of these, the ones that must stay."""


class DropHot(msgspec.Struct, frozen=True, gc=False):
    """Let the hot bytes of a lot go. Whoever asks has read and hashed the warm bytes of each."""

    lot: Lot
    results: int = 0
    bytes: int = 0
    again: tuple[EventNo, ...] = ()
    """Results that were left behind before and need not be any more."""
    is_swept: bool = False
    """Nothing is there to be deleted."""


class HotDropped(Event, frozen=True, tag=105):
    """Hot bytes need not be in the store any more: the disk or the archive has them (RET-002)."""

    after: EventNo
    until: EventNo
    results: int
    bytes: int
    left: tuple[Left, ...] = ()
    again: tuple[EventNo, ...] = ()
    is_swept: bool = False


class Held(msgspec.Struct, frozen=True, gc=False):
    """A result whose warm bytes may go."""

    event: EventNo
    digest: Digest
    size: int
    is_archived: bool
    """Else policy allows the loss."""
    is_shared: bool = False
    """Another result, which is not in a pass yet, has the same bytes."""


Stray = tuple[Digest, int]
"""Bytes on the disk that no row says are there, and how many."""


class DropWarm(msgspec.Struct, frozen=True, gc=False):
    """Let the warm bytes of a lot go. Whoever asks has the archive's word, or the policy's, for each."""

    lot: Lot
    held: tuple[Held, ...] = ()
    again: tuple[Held, ...] = ()
    strays: tuple[Stray, ...] = ()
    """Beside the lot: old enough, and the rows as of the lot need none of them."""


class WarmDropped(Event, frozen=True, tag=106):
    """Warm bytes need not be on the disk any more; `condemned` are those that no other result needs.

    Strays are among them, under event 0: no result had them.
    """

    until: EventNo
    results: int
    bytes: int
    lost: int
    lost_bytes: int
    left: tuple[Left, ...] = ()
    again: tuple[EventNo, ...] = ()
    condemned: tuple[tuple[Digest, EventNo], ...] = ()
    strays: int = 0
    stray_bytes: int = 0


class Sweep(msgspec.Struct, frozen=True, gc=False):
    """The bytes of a tier that were decided upon are deleted, but for those that somebody asked for meanwhile."""

    tier: str
    spared: tuple[Digest, ...] = ()


class BytesGone(Event, frozen=True, tag=107):
    """What was decided upon is deleted, but for what was spared."""

    tier: str
    spared: tuple[Digest, ...] = ()


class Vacuum(msgspec.Struct, frozen=True, gc=False):
    """Put tombstones in the place of records."""

    lot: Lot
    tombstones: tuple[Tombstone, ...]


class Vacuumed(Event, frozen=True, tag=108):
    """Records have left their table; what stays are tombstones and, for ever, the leaves."""

    until: EventNo
    tombstones: tuple[Tombstone, ...]


class EndAudit(msgspec.Struct, frozen=True, gc=False):
    """Take tombstones away whose audit window has ended."""

    until: EventNo
    events: tuple[EventNo, ...]


class AuditEnded(Event, frozen=True, tag=109):
    """Tombstones are gone; the leaves stay."""

    until: EventNo
    events: tuple[EventNo, ...]
