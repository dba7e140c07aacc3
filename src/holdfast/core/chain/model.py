"""The chain as the state keeps it: its head, the blocks that are not final, and the open one."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.base.canonical import canonical, packed_bytes, packed_int
from holdfast.core.base.errors import Refused
from holdfast.core.base.merkle import Frontier, leaf_hash
from holdfast.core.base.records import record_from
from holdfast.core.base.values import ChainId, Digest, EventNo, Height
from holdfast.core.chain.header import Header, SignedHeader, beacon_after, genesis_signed
from holdfast.core.policy import Policy
from holdfast.core.queue.model import HasQueue


class TxKind(StrEnum):
    """The kinds of transactions (CHN-001)."""

    ADMISSION = "admission"
    PROOF = "proof"
    CONSUMPTION = "consumption"
    EXPIRY = "expiry"
    FAILURE = "failure"
    CANCELLATION = "cancellation"
    SLASH = "slash"
    VALIDATOR = "validator"
    DEPOSIT = "deposit"
    WITHDRAWAL = "withdrawal"


class Tx(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A transaction: its event, its subject, and the hash of its leaf in the block's tree."""

    number: EventNo
    kind: TxKind
    subject: bytes
    leaf: Digest


def tx_leaf(kind: TxKind, number: EventNo, subject: bytes, content: bytes) -> bytes:
    """A transaction as a light client sees it: its kind, its event, its subject and the event's content.

    It equals `canonical([kind, number, subject, content])`, written out because every job needs it twice.
    """
    return _LEAF_PREFIX[kind] + packed_int(number) + packed_bytes(subject) + packed_bytes(content)


_LEAF_PREFIX: Final = {kind: b"\x84" + canonical(kind.value) for kind in TxKind}
"""The beginning of an array of four items, the first of which is the kind."""


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


class UnfinalizedBlock(msgspec.Struct, array_like=True):
    """A sealed block with what a rollback needs; the last final block is kept in this form, too."""

    block: Block
    txs: list[Tx]
    log: Frontier
    """The log of results after this block."""


class FinalBlock(msgspec.Struct, array_like=True):
    """A final block that is still in memory, with those of its transactions that are."""

    event: EventNo
    """The event that made it final."""
    block: Block
    txs: list[Tx]


class OpenBlock(msgspec.Struct, array_like=True):
    """The block that is being filled."""

    txs: list[Tx] = []
    tree: Frontier = msgspec.field(default_factory=Frontier)
    results: Frontier = msgspec.field(default_factory=Frontier)
    blobs: Frontier = msgspec.field(default_factory=Frontier)


class Rollback(msgspec.Struct, array_like=True):
    """A rollback that is under way: the head is the block it returns to, blocks above it wait to be rolled back."""

    started: EventNo
    """The event that started it; 0 where one decision does all of it."""
    pool: list[Tx] = []
    """Transactions that wait for their inclusion, in the order of their events."""
    linked: int = 0
    """How many of them, at the beginning, still have the effects of the block that they were in."""
    height: Height = Height(0)
    """Of that block."""


class Chain(msgspec.Struct, array_like=True):
    """Head, open block, log of results, and all blocks that are not final."""

    head: Block
    open: OpenBlock = msgspec.field(default_factory=OpenBlock)
    log: Frontier = msgspec.field(default_factory=Frontier)
    unfinalized: dict[Height, UnfinalizedBlock] = {}
    """Heights ascending, the head last; above it only those that a rollback has not reached yet."""
    last_final: UnfinalizedBlock | None = None
    """The last final block, None before the first: the lowest head that a rollback can reach."""
    rollback: Rollback | None = None
    """While it runs, no block is sealed, and new transactions wait in its pool."""

    @property
    def is_at_genesis(self) -> bool:
        return self.head.height == 0 and not self.open.txs and self.rollback is None


class HasChain(HasQueue, Protocol):
    """The parts of the state that the chain reads and changes."""

    chain: Chain
    final_blocks: dict[Height, FinalBlock]


def genesis_chain(policy: Policy) -> Chain:
    """A chain without blocks; id and kind of the network never change (ESC-003)."""
    return Chain(block_of(EventNo(0), genesis_signed(ChainId(policy.chain_id), policy.network)))


def block_of(event: EventNo, signed: SignedHeader) -> Block:
    told = {"hash": signed.hash, "signature": signed.signature}
    return record_from(Block, signed.header, event=event, status=BlockStatus.SEALED, **told)


def signed_of(block: Block, chain_id: ChainId) -> SignedHeader:
    return SignedHeader(record_from(Header, block, chain_id=chain_id), block.hash, block.signature)


def next_header(state: HasChain, last_event: EventNo, time_ms: int, proposer: bytes) -> Header:
    """The header of the open block, if it were sealed with everything up to `last_event` (CHN-002)."""
    chain = state.chain
    head, open_ = chain.head, chain.open
    return Header(
        chain_id=ChainId(state.policy.chain_id),
        height=Height(head.height + 1),
        parent=head.hash,
        time_ms=time_ms,
        proposer=proposer,
        beacon=beacon_after(head.signature),
        first_event=EventNo(head.last_event + 1),
        last_event=last_event,
        tx_count=open_.tree.size,
        tx_root=open_.tree.root(),
        result_count=open_.results.size,
        result_root=open_.results.root(),
        blob_count=open_.blobs.size,
        blob_root=open_.blobs.root(),
        log_size=chain.log.size,
        log_root=chain.log.root(),
    )


def add_results(state: HasChain, leaves: Iterable[bytes]) -> None:
    """RES-008: a result's leaf is in the block that resolves it and in the log of all results."""
    hashes = [leaf_hash(leaf) for leaf in leaves]
    state.chain.open.results.extend(hashes)
    state.chain.log.extend(hashes)


def copy_frontier(frontier: Frontier) -> Frontier:
    return Frontier(frontier.size, list(frontier.peaks))


def final_height(state: HasChain) -> Height:
    """CHN-005: blocks up to here are never rolled back."""
    last_final = state.chain.last_final
    return last_final.block.height if last_final is not None else Height(0)


def why_not_while_rolling_back(state: HasChain) -> Refused | None:
    """CHN-003, CHN-004: what moves the chain or the money of its blocks waits for the end of a rollback."""
    if state.chain.rollback is None:
        return None
    message = f"a rollback to block {state.chain.head.height} is running"
    return Refused("CHN-003", message, "try again when it has finished", "RollbackRunning")
