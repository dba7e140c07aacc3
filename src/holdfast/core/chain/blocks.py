"""What is kept of the chain in memory: its head, the blocks that can still be taken back, and the open one."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from holdfast.core.chain.header import Header, Signed, beacon_after, genesis_signed
from holdfast.core.merkle import Frontier
from holdfast.core.queue.books import Admitting
from holdfast.core.values import ChainId, Digest, EventNo, Height


class TxKind(StrEnum):
    """What goes into blocks (CHN-001)."""

    ADMISSION = "admission"
    PROOF = "proof"
    CONSUMPTION = "consumption"
    EXPIRY = "expiry"
    FAILURE = "failure"
    CANCELLATION = "cancellation"
    SLASH = "slash"
    VALIDATOR = "validator"


class Tx(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A transaction: the event that is one, what it is about, and its leaf's hash in the block's tree."""

    number: EventNo
    kind: TxKind
    subject: bytes
    leaf: Digest


class BlockStatus(StrEnum):
    """Whether a block is on the active chain."""

    SEALED = "SEALED"
    ORPHANED = "ORPHANED"


class Block(msgspec.Struct, array_like=True, gc=False):
    """A sealed block; a row of the table `block`, whose key is the event that sealed it."""

    event: EventNo
    height: Height
    hash: Digest
    status: BlockStatus
    parent: Digest
    time_ms: int
    proposer: bytes
    beacon: Digest
    first_event: EventNo
    last_event: EventNo
    tx_count: int
    tx_root: Digest
    result_count: int
    result_root: Digest
    blob_count: int
    blob_root: Digest
    log_size: int
    log_root: Digest
    signature: bytes


class Recent(msgspec.Struct, array_like=True):
    """A sealed block that a reorg can still take back, with what taking it back needs."""

    block: Block
    txs: list[Tx]
    log: Frontier
    """As it was after this block."""


class Open(msgspec.Struct, array_like=True):
    """The block that is being filled."""

    txs: list[Tx] = []
    tree: Frontier = msgspec.field(default_factory=Frontier)
    results: Frontier = msgspec.field(default_factory=Frontier)
    blobs: Frontier = msgspec.field(default_factory=Frontier)


class Chain(msgspec.Struct, array_like=True):
    """Head, open block, log of results, and all blocks that are not final."""

    head: Block
    open: Open = msgspec.field(default_factory=Open)
    log: Frontier = msgspec.field(default_factory=Frontier)
    recent: dict[Height, Recent] = {}
    """Heights ascending, the head last."""
    base: Recent | None = None
    """The last final block, None before the first: what a rollback can come down to."""

    @property
    def is_untouched(self) -> bool:
        return self.head.height == 0 and not self.open.txs


class Linked(Admitting, Protocol):
    """What this station needs of the state."""

    chain: Chain
    settling: dict[Height, list[Tx]]
    """Transactions of final blocks that memory has not let go of yet."""


def begun(chain_id: ChainId) -> Chain:
    """A chain without blocks."""
    return Chain(block_of(EventNo(0), genesis_signed(chain_id)))


def block_of(event: EventNo, signed: Signed) -> Block:
    header = signed.header
    rest = {name: getattr(header, name) for name in _HEADER_COLUMNS}
    return Block(event, header.height, signed.hash, BlockStatus.SEALED, signature=signed.signature, **rest)


_HEADER_COLUMNS = [name for name in Header.__struct_fields__ if name not in ("chain_id", "height")]


def signed_of(block: Block, chain_id: ChainId) -> Signed:
    header = Header(chain_id, block.height, *(getattr(block, name) for name in _HEADER_COLUMNS))
    return Signed(header, block.hash, block.signature)


def next_header(state: Linked, last_event: EventNo, time_ms: int, proposer: bytes) -> Header:
    """The header of the open block as it stands: everything up to the last event is in it (CHN-002)."""
    chain = state.chain
    head, open_ = chain.head, chain.open
    return Header(
        ChainId(state.policy.chain_id),
        Height(head.height + 1),
        head.hash,
        time_ms,
        proposer,
        beacon_after(head.signature),
        EventNo(head.last_event + 1),
        last_event,
        open_.tree.size,
        open_.tree.root(),
        open_.results.size,
        open_.results.root(),
        open_.blobs.size,
        open_.blobs.root(),
        chain.log.size,
        chain.log.root(),
    )


def copy_of(frontier: Frontier) -> Frontier:
    return Frontier(frontier.size, list(frontier.peaks))


def finalized(state: Linked) -> Height:
    """CHN-005: blocks up to here are never taken back."""
    base = state.chain.base
    return base.block.height if base is not None else Height(0)
