"""What must hold of blobs after every decision."""

from __future__ import annotations

from typing import Final

from holdfast.core.blob.model import NOT_SEALED, BlobStatus, HasBlobs, all_blobs
from holdfast.core.chain.model import final_height

_ONCE_ARCHIVED: Final = (BlobStatus.ARCHIVED, BlobStatus.SUSPECT)


def broken_invariants(state: HasBlobs) -> list[str]:
    heights, open_height, final = list(state.blob_heights), state.open_height, final_height(state)
    blobs = [live.blob for live in all_blobs(state)]
    checks = {
        "blobs are kept in the order of their blocks": heights == sorted(heights),
        "blobs of a block are numbered without gaps": all(
            [live.blob.number for live in lives] == list(range(len(lives))) for lives in state.blob_heights.values()
        ),
        "the open block commits to its blobs": state.chain.open.blobs.size
        == len(state.blob_heights.get(open_height, ())),
        "a blob has the hash of its block once that is sealed": all(
            (blob.block_hash == NOT_SEALED) == (blob.height == open_height) for blob in blobs
        ),
        "only bytes of final and archived blobs are deleted": all(
            blob.height <= final and blob.status in _ONCE_ARCHIVED for blob in blobs if blob.is_pruned
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]
