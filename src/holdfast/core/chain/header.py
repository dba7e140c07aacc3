"""A header: what one block says of itself, in one canonical form that is hashed and signed (CHN-001)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.core.canon import H, canonical
from holdfast.core.merkle import EMPTY_ROOT
from holdfast.core.values import ZERO_DIGEST, ChainId, Digest, EventNo, Height

BLOCK_TAG: Final = "holdfast.block.v1"
BEACON_TAG: Final = "holdfast.beacon.v1"
GENESIS_TAG: Final = "holdfast.genesis.v1"

Verify = Callable[[bytes, bytes, bytes], bool]
"""Public key, message, signature: whether the signature is good."""


class Header(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """CHN-001: order, time and proposer of a block, the events it covers, and the roots of what is in it."""

    chain_id: ChainId
    height: Height
    parent: Digest
    time_ms: int
    proposer: bytes
    """The Ed25519 public key of whoever sealed it."""
    beacon: Digest
    first_event: EventNo
    last_event: EventNo
    tx_count: int = 0
    tx_root: Digest = EMPTY_ROOT
    result_count: int = 0
    result_root: Digest = EMPTY_ROOT
    blob_count: int = 0
    blob_root: Digest = EMPTY_ROOT
    log_size: int = 0
    log_root: Digest = EMPTY_ROOT
    """Over the leaves of all results on this chain, those of this block included."""


def header_hash(header: Header) -> Digest:
    """The block's name, and what its proposer signs."""
    return H(BLOCK_TAG, canonical(list(msgspec.structs.astuple(header))))


def genesis(chain_id: ChainId) -> Header:
    """Height 0: no block, but what the first block follows."""
    return Header(chain_id, Height(0), ZERO_DIGEST, 0, b"", genesis_hash(chain_id), EventNo(1), EventNo(0))


def genesis_hash(chain_id: ChainId) -> Digest:
    return H(GENESIS_TAG, chain_id)


def beacon_after(signature: bytes) -> Digest:
    """Nobody knows a block's beacon before the block below it is signed."""
    return H(BEACON_TAG, signature)


class Signed(msgspec.Struct, frozen=True, gc=False):
    """A header with the name and the signature that belong to it."""

    header: Header
    hash: Digest
    signature: bytes


def genesis_signed(chain_id: ChainId) -> Signed:
    """What block 1 links to. Its hash stands in for the signature that nobody gave."""
    hash_ = genesis_hash(chain_id)
    return Signed(genesis(chain_id), hash_, hash_)


def why_not_next(before: Signed, signed: Signed, verify: Verify) -> str | None:
    """CHN-001: why a header cannot follow another on one chain, in a sentence; None where it does."""
    header, parent = signed.header, before.header
    checks = (
        (header.chain_id == parent.chain_id, f"is of chain {header.chain_id}, not of {parent.chain_id}"),
        (header.height == parent.height + 1, f"does not follow height {parent.height}"),
        (header.parent == before.hash, "names another parent"),
        (signed.hash == header_hash(header), "does not have the hash it is shown with"),
        (header.beacon == beacon_after(before.signature), "has a beacon that is not its parent's signature's"),
        (header.first_event == parent.last_event + 1, f"does not begin after event {parent.last_event}"),
        (header.last_event >= header.first_event - 1, "ends before it begins"),
        (header.time_ms >= parent.time_ms, "is earlier than its parent"),
        (header.log_size == parent.log_size + header.result_count, "does not add its results to the log"),
        (verify(header.proposer, signed.hash, signed.signature), "is not signed by its proposer"),
    )
    return next((f"block {header.height} {says}" for holds, says in checks if not holds), None)
