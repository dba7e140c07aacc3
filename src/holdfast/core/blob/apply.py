"""What an event does to blobs: they enter the open block, are sealed with it, and wait again if it is orphaned."""

from __future__ import annotations

from holdfast.core.base.merkle import leaf_hash
from holdfast.core.base.records import record_from
from holdfast.core.base.values import Digest, EventNo, Height
from holdfast.core.blob.messages import BlobAdded
from holdfast.core.blob.model import (
    EVENT,
    NOT_SEALED,
    OFFSET,
    PARTS,
    Blob,
    BlobContent,
    BlobStatus,
    HasBlobs,
    LiveBlob,
    StoredPart,
    blob_leaf,
    touch_blob,
)


def apply_added(state: HasBlobs, event: BlobAdded) -> None:
    """CHN-001: the header of the open block commits to the blob."""
    number, content, progress = state.last_event, event.content, state.blob_progress
    blob = record_from(
        Blob,
        content,
        event=number,
        height=event.height,
        number=event.number,
        block_hash=NOT_SEALED,
        proposer=NOT_SEALED,
        status=BlobStatus.PENDING,
    )
    live = LiveBlob(blob, content.parts, number)
    state.blob_heights.setdefault(event.height, []).append(live)
    state.chain.open.blobs.append(leaf_hash(blob_leaf(content)))
    touch_blob(state, live)
    place = progress.get(PARTS, 0)
    for offset, part in enumerate(content.parts):
        state.touched["blob_part"][place + offset] = record_from(StoredPart, part, place=place + offset, blob=number)
    progress.update({EVENT: event.event, OFFSET: event.offset, PARTS: place + len(content.parts)})
    if state.blob_pool and state.blob_pool[0].versioned_hash == content.versioned_hash:
        del state.blob_pool[0]


def seal_blobs(state: HasBlobs, height: Height, block_hash: Digest, proposer: bytes) -> None:
    """BLB-002: from here on a row is found by block hash and index, and its proposer archives it."""
    for live in state.blob_heights.get(height, ()):
        blob = touch_blob(state, live)
        blob.block_hash, blob.proposer = block_hash, proposer
        # The first proposer of blobs is the first validator; after a rollback its blobs may be in lower blocks.
        state.validators[proposer] = min(height, state.validators.get(proposer, height))


def orphan_blobs(state: HasBlobs, above: Height) -> None:
    """BLB-002, CHN-003: blobs of blocks above this height are marked, and wait to be added again in their order."""
    for height in sorted((each for each in state.blob_heights if each > above), reverse=True):
        blobs = state.blob_heights.pop(height)
        state.blob_pool[:0] = [content_of(live) for live in blobs]
        for live in blobs:
            touch_blob(state, live).status = BlobStatus.ORPHANED


def content_of(live: LiveBlob) -> BlobContent:
    return record_from(BlobContent, live.blob, parts=live.parts)


def evict_blobs(state: HasBlobs, as_of: EventNo) -> None:
    """ENG-004: heights whose bytes are gone leave memory, once the tables hold their rows; what is lost stays told."""
    for height, blobs in list(state.blob_heights.items()):
        if all(_is_evictable(live, as_of) for live in blobs):
            del state.blob_heights[height]


def _is_evictable(live: LiveBlob, as_of: EventNo) -> bool:
    return bool(live.blob.is_pruned) and live.changed <= as_of and live.blob.status is not BlobStatus.SUSPECT
