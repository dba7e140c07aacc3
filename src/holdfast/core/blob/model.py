"""Blobs as the state keeps them: those whose bytes this node still has, by height, and those that wait for a block."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import Digest, EventNo, Height, TaskId
from holdfast.core.retention.model import HasRetention
from holdfast.core.validator.model import HasValidators


class BlobStatus(StrEnum):
    """What became of a blob."""

    PENDING = "PENDING"
    """In a block, in no archive yet."""
    ARCHIVED = "ARCHIVED"
    SUSPECT = "SUSPECT"
    """Archived once, and the archive could not show it again."""
    ORPHANED = "ORPHANED"
    """Its block was rolled back."""


class BlobPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Some bytes of one result's frame, and where they are in the payload of a blob."""

    task_id: TaskId
    result_digest: Digest
    offset: int
    length: int


class BlobContent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a blob is, in whichever block: its commitment, its proof, its hashes, and the results in it."""

    versioned_hash: Digest
    commitment: bytes
    proof: bytes
    keccak: Digest
    """Keccak-256 of the blob's bytes, computed by whoever stored them."""
    parts: tuple[BlobPart, ...]


class Blob(msgspec.Struct, array_like=True, gc=False):
    """A blob in a block; a row of the table `blob`, whose key is the event that added it. It is never deleted."""

    event: EventNo
    height: Height
    number: int
    """Its index in the block."""
    block_hash: bytes
    """Empty while the block is open, like its proposer."""
    proposer: bytes
    status: BlobStatus
    versioned_hash: Digest
    commitment: bytes
    proof: bytes
    keccak: Digest
    item_id: str = ""
    """Of the signed item that is uploaded: known before the upload."""
    provider_id: str = ""
    locator: str = ""
    archived_by: bytes = b""
    """The address of the signer of its notice."""
    archived_at: int = 0
    """The time of the intent in seconds."""
    assurance: str = ""
    signature: bytes = b""
    alternates: str = ""
    """Other locators with the same bytes, one a line."""
    attempts: int = 0
    retry_ms: int = 0
    """Uploads that failed, and when the next one is due."""
    reason: str = ""
    is_pruned: int = 0


class LiveBlob(msgspec.Struct, array_like=True, gc=False):
    """A blob in memory, with the results in it."""

    blob: Blob
    parts: tuple[BlobPart, ...]
    changed: EventNo
    """The last event that changed its row."""


class StoredPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of a result's frame; a row of the table `blob_part` under a running number."""

    place: int
    blob: EventNo
    task_id: TaskId
    result_digest: Digest
    offset: int
    length: int


class BlobCursor(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """How far results are in blobs: all up to an event, and the first bytes of the next frame."""

    event: EventNo = EventNo(0)
    offset: int = 0


EVENT, OFFSET, PARTS = "event", "offset", "parts"
ARCHIVED_HEIGHT, ARCHIVED, PRUNED = "archived_height", "archived", "pruned"
"""The entries of `blob_progress`: the cursor, the rows of `blob_part`, the latest archived height, and two counts."""
NOT_SEALED: Final = b""


class Unconfirmed(msgspec.Struct, array_like=True, gc=False):
    """A notice that some validators have not confirmed yet (NTC-004)."""

    root: bytes
    """What its signature, and a confirmation, is of."""
    confirmed: list[bytes]
    """The keys that have it, its signer's first."""


class HasBlobs(HasRetention, HasValidators, Protocol):
    """The parts of the state that blobs read and change."""

    blob_progress: dict[str, int]
    blob_heights: dict[Height, list[LiveBlob]]
    """Blobs whose bytes this node has, heights ascending, indexes ascending; the open block's are the last."""
    blob_pool: list[BlobContent]
    """Blobs of orphaned blocks, in order: the next blocks have them again."""
    notices_unconfirmed: dict[bytes, Unconfirmed]
    """Notices that not every validator has, by the place of their blob, oldest first."""


def place_of(height: Height, number: int) -> bytes:
    """A blob's height and index as one key, in the order of both."""
    return height.to_bytes(8, "big") + number.to_bytes(4, "big")


def cursor_of(state: HasBlobs) -> BlobCursor:
    progress = state.blob_progress
    return BlobCursor(EventNo(progress.get(EVENT, 0)), progress.get(OFFSET, 0))


def blob_leaf(content: BlobContent) -> bytes:
    """CHN-001: a blob as the header's root commits to it."""
    parts = [list(msgspec.structs.astuple(part)) for part in content.parts]
    return canonical([content.versioned_hash, content.commitment, content.keccak, parts])


def live_blob(state: HasBlobs, height: Height, number: int) -> LiveBlob | None:
    blobs = state.blob_heights.get(height, [])
    return blobs[number] if 0 <= number < len(blobs) else None


def touch_blob(state: HasBlobs, live: LiveBlob) -> Blob:
    """The record of a blob that the current event changes."""
    live.changed = state.last_event
    state.touched["blob"][live.blob.event] = live.blob
    return live.blob


def all_blobs(state: HasBlobs) -> Iterator[LiveBlob]:
    for blobs in state.blob_heights.values():
        yield from blobs
