"""Notices for the tests, signed by the proposer of the tests' blocks."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from tests.core.blocks import PROPOSER, sign

from holdfast.core.archive.notice import ArchiveNotice, notice_root
from holdfast.core.base.values import ChainId, Height
from holdfast.core.state import State


def address_of(public: bytes) -> bytes:
    return sha256(public).digest()[:20]


def notice_of(state: State, height: Height, number: int = 0, /, **changed: Any) -> ArchiveNotice:
    """A good notice about a blob, with some fields changed, signed after that."""
    blob = state.blob_heights[height][number].blob
    notice = ArchiveNotice(
        version=1,
        height=height,
        blob_index=number,
        kzg_commitment=blob.commitment,
        blob_keccak=blob.keccak,
        provider_id="file",
        locator="file:store/items/item.ans104",
        archived_by=address_of(PROPOSER),
        archived_at=1_700_000_000,
        chain_id=ChainId(state.policy.chain_id),
        versioned_hash=blob.versioned_hash,
    )
    notice = msgspec.structs.replace(notice, **changed)
    return msgspec.structs.replace(notice, signature=sign(notice_root(notice)))
