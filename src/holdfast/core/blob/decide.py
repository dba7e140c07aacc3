"""Whether a blob may enter the open block (BLB-002)."""

from __future__ import annotations

from itertools import pairwise

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.blob.framing import PARTS_MAX, PAYLOAD_BYTES, versioned_hash
from holdfast.core.blob.messages import BLOCK_FULL, AddBlob, BlobAdded, ReaddBlobs
from holdfast.core.blob.model import BlobContent, HasBlobs, cursor_of
from holdfast.core.chain.model import why_not_while_rolling_back


def add_blob(state: HasBlobs, command: AddBlob, _now_ms: int) -> Decided | Refused:
    """BLB-002: the first block that is sealed after the KZG work has the blob; resolution did not wait for it."""
    if refusal := why_not_while_rolling_back(state) or _why_not_content(command.content):
        return refusal
    if state.blob_pool:
        return Refused("BLB-002", f"{len(state.blob_pool)} blobs of orphaned blocks come first", "try again")
    if command.after != (cursor := cursor_of(state)) or command.until <= cursor:
        return Refused("BLB-002", f"results are in blobs up to event {cursor.event}", "pack what follows it")
    if not _room(state):
        return Refused("BLB-002", f"block {state.open_height} is full of blobs", "the next block has", BLOCK_FULL)
    until = command.until
    return Decided((BlobAdded(state.open_height, _count(state), command.content, until.event, until.offset),))


def readd_blobs(state: HasBlobs, _: ReaddBlobs, _now_ms: int) -> Decided | Refused:
    """CHN-004: in their order, without new KZG work."""
    if refusal := why_not_while_rolling_back(state):
        return refusal
    cursor, contents = cursor_of(state), state.blob_pool[: _room(state)]
    added = tuple(
        BlobAdded(state.open_height, number, content, cursor.event, cursor.offset)
        for number, content in enumerate(contents, _count(state))
    )
    return Decided(added, repeat_of=None if added else state.last_event)


def _count(state: HasBlobs) -> int:
    return len(state.blob_heights.get(state.open_height, ()))


def _room(state: HasBlobs) -> int:
    return max(0, state.policy.archive.blobs_per_block_max - _count(state))


def _why_not_content(content: BlobContent) -> Refused | None:
    sizes = (len(content.commitment), len(content.proof), len(content.keccak))
    ends = [(part.offset, part.offset + part.length) for part in content.parts]
    checks = (
        (sizes == (48, 48, 32), "a commitment and a proof have 48 bytes, a hash has 32"),
        (content.versioned_hash == versioned_hash(content.commitment), "the versioned hash is another commitment's"),
        (0 < len(ends) <= PARTS_MAX, f"a blob has 1 to {PARTS_MAX} parts"),
        (all(start < end <= PAYLOAD_BYTES for start, end in ends), "a part is outside of the blob"),
        (all(end <= start for (_, end), (start, _) in pairwise(ends)), "two parts overlap"),
    )
    fault = next((fault for is_met, fault in checks if not is_met), None)
    return None if fault is None else Refused("BLB-001", fault, name="InvalidParams")
