"""The header of a block, in one canonical form that is hashed and signed (CHN-001)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.canonical import H, canonical
from holdfast.core.base.merkle import EMPTY_ROOT
from holdfast.core.base.values import ZERO_DIGEST, ChainId, Digest, EventNo, Height, Network, VerifySignature

BLOCK_TAG: Final = "holdfast.block.v1"
BEACON_TAG: Final = "holdfast.beacon.v1"
GENESIS_TAG: Final = "holdfast.genesis.v1"


class Header(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """CHN-001: order, time and proposer of a block, the events it covers, and the roots of its trees."""

    chain_id: ChainId
    height: Height
    parent: Digest
    time_ms: int
    proposer: bytes
    """The Ed25519 public key of the proposer."""
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
    """The block's hash, which its proposer signs."""
    return H(BLOCK_TAG, canonical(list(msgspec.structs.astuple(header))))


def genesis_hash(chain_id: ChainId, network: Network) -> Digest:
    """ESC-003: the kind of network is part of the first hash, so that no chain is ever of another kind.

    A development network is not named: its chains keep the genesis that they had before kinds were part of it.
    """
    return H(GENESIS_TAG, chain_id, *([] if network is Network.DEVELOPMENT else [network.value.encode()]))


def network_of(chain_id: ChainId, genesis: Digest) -> Network | None:
    """The kind of network whose chain begins with this hash."""
    return next((network for network in Network if genesis_hash(chain_id, network) == genesis), None)


def beacon_after(signature: bytes) -> Digest:
    """A block's beacon is not known before the block below it is signed."""
    return H(BEACON_TAG, signature)


class SignedHeader(msgspec.Struct, frozen=True, gc=False):
    """A header with its hash and its signature."""

    header: Header
    hash: Digest
    signature: bytes


def genesis_signed(chain_id: ChainId, network: Network) -> SignedHeader:
    """Height 0: not a block, but the parent of the first one. Its hash stands in for the missing signature."""
    hash_ = genesis_hash(chain_id, network)
    header = Header(
        chain_id=chain_id,
        height=Height(0),
        parent=ZERO_DIGEST,
        time_ms=0,
        proposer=b"",
        beacon=hash_,
        first_event=EventNo(1),
        last_event=EventNo(0),
    )
    return SignedHeader(header, hash_, hash_)


def why_not_next(before: SignedHeader, signed: SignedHeader, verify: VerifySignature) -> str | None:
    """CHN-001: why a header does not follow another on one chain; None where it does."""
    header, parent = signed.header, before.header
    checks = (
        (header.chain_id == parent.chain_id, f"is of chain {header.chain_id}, not of {parent.chain_id}"),
        (header.height == parent.height + 1, f"does not follow height {parent.height}"),
        (header.parent == before.hash, "names another parent"),
        (signed.hash == header_hash(header), "does not match its hash"),
        (header.beacon == beacon_after(before.signature), "has a beacon that does not follow from its parent"),
        (header.first_event == parent.last_event + 1, f"does not begin after event {parent.last_event}"),
        (header.last_event >= header.first_event - 1, "ends before it begins"),
        (header.time_ms >= parent.time_ms, "is earlier than its parent"),
        (header.log_size == parent.log_size + header.result_count, "does not add its results to the log"),
        (verify(header.proposer, signed.hash, signed.signature), "is not signed by its proposer"),
    )
    return next((f"block {header.height} {fault}" for is_met, fault in checks if not is_met), None)
