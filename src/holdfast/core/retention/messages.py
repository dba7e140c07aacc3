"""Commands and events of retention: the passes, and the confirmation that bytes are deleted."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import Digest, EventNo, Height
from holdfast.core.retention.model import Tombstone

Skipped = tuple[EventNo, str]
"""A result that a pass skips, and why."""


class PageRange(msgspec.Struct, frozen=True, gc=False):
    """Which results a step of a pass processed: those after the pass's position, up to `until`."""

    as_of: EventNo
    """The rows that were read show every event up to this one."""
    watermark: Height
    """None of them was resolved above this height."""
    until: EventNo
    skipped: tuple[Skipped, ...] = ()
    """Of these, the ones whose bytes must stay."""


class DropHot(Command, frozen=True):
    """Drop the hot bytes of a page. The collector has read and hashed the warm bytes of each result."""

    page: PageRange
    results: int = 0
    bytes: int = 0
    retried: tuple[EventNo, ...] = ()
    """Results that were skipped before and need not be any more."""
    is_deleted: bool = False
    """There is nothing to delete."""


class HotDropped(Event, frozen=True, tag=105):
    """Hot bytes can be deleted from the store: the disk or the archive has them (RET-002)."""

    public_name: ClassVar = "cap.hotDropped"

    after: EventNo
    until: EventNo
    results: int
    bytes: int
    skipped: tuple[Skipped, ...] = ()
    retried: tuple[EventNo, ...] = ()
    is_deleted: bool = False


class WarmCandidate(msgspec.Struct, frozen=True, gc=False):
    """A result with warm bytes that may be deleted."""

    event: EventNo
    digest: Digest
    size: int
    is_archived: bool
    """Where it is not, policy must allow the loss."""
    is_shared: bool = False
    """Another result, which is not in a pass yet, has the same bytes."""


OrphanFile = tuple[Digest, int]
"""Digest and size of a file on the disk that no row needs."""


class DropWarm(Command, frozen=True):
    """Drop the warm bytes of a page. For each result the archive has them, or policy allows the loss."""

    page: PageRange
    candidates: tuple[WarmCandidate, ...] = ()
    retried: tuple[WarmCandidate, ...] = ()
    orphans: tuple[OrphanFile, ...] = ()
    """Beside the page: old enough, and the rows as of the page need none of them."""


class WarmDropped(Event, frozen=True, tag=106):
    """Warm bytes can be deleted from the disk; `deletable` are those that no other result needs.

    Orphans are among them, with event 0: they have no result.
    """

    public_name: ClassVar = "cap.warmDropped"

    until: EventNo
    results: int
    bytes: int
    lost: int
    lost_bytes: int
    skipped: tuple[Skipped, ...] = ()
    retried: tuple[EventNo, ...] = ()
    deletable: tuple[tuple[Digest, EventNo], ...] = ()
    orphans: int = 0
    orphan_bytes: int = 0


class ConfirmDeleted(Command, frozen=True):
    """The pending deletions of a tier are done, except for bytes that were requested meanwhile."""

    tier: str
    spared: tuple[Digest, ...] = ()


class BytesDeleted(Event, frozen=True, tag=107):
    """The pending deletions of a tier are done, except for what was spared."""

    tier: str
    spared: tuple[Digest, ...] = ()


class Vacuum(Command, frozen=True):
    """Replace records by tombstones."""

    page: PageRange
    tombstones: tuple[Tombstone, ...]


class Vacuumed(Event, frozen=True, tag=108):
    """Records were replaced by tombstones; the leaves stay for ever."""

    public_name: ClassVar = "cap.resultsVacuumed"

    until: EventNo
    tombstones: tuple[Tombstone, ...]


class EndAudit(Command, frozen=True):
    """Delete tombstones whose audit window has ended."""

    until: EventNo
    events: tuple[EventNo, ...]


class AuditEnded(Event, frozen=True, tag=109):
    """Tombstones were deleted; the leaves stay."""

    until: EventNo
    events: tuple[EventNo, ...]
