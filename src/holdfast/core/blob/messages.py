"""Commands and events of blobs."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import EventNo, Height
from holdfast.core.blob.model import BlobContent, BlobCursor

BLOCK_FULL: Final = "BlockFull"


class AddBlob(Command, frozen=True):
    """Put a blob into the open block. Its bytes are durable and its KZG work is done (ENG-007, BLB-002)."""

    content: BlobContent
    after: BlobCursor
    """Where the blob begins, as its packer found it."""
    until: BlobCursor


class ReaddBlobs(Command, frozen=True):
    """Put blobs of orphaned blocks into the open block, as many as fit."""


class BlobAdded(Event, frozen=True, tag=150):
    """A blob is in the open block."""

    height: Height
    number: int
    content: BlobContent
    event: EventNo = EventNo(0)
    offset: int = 0
    """The new cursor: how far results are in blobs."""
