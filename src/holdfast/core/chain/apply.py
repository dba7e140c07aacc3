"""What an event does to the chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.merkle import Frontier
from holdfast.core.base.values import ChainId, EventNo, Height, TaskId
from holdfast.core.chain.header import SignedHeader, header_hash
from holdfast.core.chain.messages import (
    BlockRolledBack,
    BlockSealed,
    BlocksFinal,
    SettlementsFinalized,
    TransactionsReincluded,
)
from holdfast.core.chain.model import (
    BlockStatus,
    FinalBlock,
    HasChain,
    OpenBlock,
    Tx,
    TxKind,
    UnfinalizedBlock,
    block_of,
    copy_frontier,
    final_height,
    genesis_chain,
    next_header,
)
from holdfast.core.chain.transactions import append_txs
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.escrow.messages import Finalized
from holdfast.core.queue import apply as queue_apply


def apply_sealed(state: HasChain, event: BlockSealed) -> None:
    """CHN-006: the header is computed again from the events; another hash is Corrupt."""
    chain = state.chain
    header = next_header(state, EventNo(state.last_event - 1), event.time_ms, event.proposer)
    if (header_hash(header), header.height) != (event.hash, event.height):
        hint = "chain_id must be that of the chain's first block; else the journal was changed"
        raise Corrupt("CHN-006", f"block {event.height} does not match the hash of its events", hint)
    block = block_of(state.last_event, SignedHeader(header, event.hash, event.signature))
    chain.unfinalized[event.height] = UnfinalizedBlock(block, chain.open.txs, copy_frontier(chain.log))
    chain.head, chain.open = block, OpenBlock()
    state.touched["block"][block.event] = block


def apply_finalized(state: HasChain, event: Finalized) -> None:
    """CHN-005, ESC-002: final blocks are never rolled back, and their money is available."""
    escrow_apply.apply_finalized(state, event)
    _make_blocks_final(state, event.height)


def apply_blocks_final(state: HasChain, event: BlocksFinal) -> None:
    """CHN-005: final blocks are never rolled back; their money becomes available in steps."""
    state.ledger.finalized_height = event.height
    _make_blocks_final(state, event.height)


def _make_blocks_final(state: HasChain, height: Height) -> None:
    chain = state.chain
    for final in [each for each in chain.unfinalized if each <= height]:
        chain.last_final = sealed = chain.unfinalized.pop(final)
        state.final_blocks[final] = FinalBlock(state.last_event, sealed.block, sealed.txs)
        sealed.txs = []


def apply_settlements_finalized(state: HasChain, event: SettlementsFinalized) -> None:
    """ESC-002: the oldest settlements become available first."""
    escrow_apply.finalize_some(state, event.count, final_height(state))


def apply_rolled_back(state: HasChain, event: BlockRolledBack) -> None:
    """CHN-003: the head is orphaned; its transactions wait in the open block, before later ones."""
    chain = state.chain
    escrow_apply.roll_back_settlements(state, event.height)
    if not event.hash:
        return
    orphaned = chain.unfinalized.pop(event.height)
    orphaned.block.status = BlockStatus.ORPHANED
    state.touched["block"][orphaned.block.event] = orphaned.block
    chain.open.txs = orphaned.txs + chain.open.txs
    chain.head = _last_sealed(state).block


def _last_sealed(state: HasChain) -> UnfinalizedBlock:
    chain = state.chain
    if chain.unfinalized:
        return next(reversed(chain.unfinalized.values()))
    return chain.last_final or UnfinalizedBlock(genesis_chain(ChainId(state.policy.chain_id)).head, [], Frontier())


Reapply = Callable[[Any, Tx], None]
"""The effect of being included in a block, applied again in another block."""


def apply_reincluded(state: HasChain, event: TransactionsReincluded, reapply: Mapping[TxKind, Reapply]) -> None:
    """CHN-004: the transactions of orphaned blocks are included in the open block, in their order."""
    chain = state.chain
    waiting = chain.open.txs
    if (len(waiting), chain.head.height + 1) != (event.count, event.height):
        raise Corrupt("CHN-004", f"{len(waiting)} transactions wait for block {chain.head.height + 1}, not {event}")
    chain.open, chain.log = OpenBlock(), copy_frontier(_last_sealed(state).log)
    for tx in waiting:
        append_txs(chain.open, [tx])
        if (effect := reapply.get(tx.kind)) is not None:
            effect(state, tx)


def reapply_refund(state: HasChain, tx: Tx) -> None:
    """A job that ended without a result is refunded in the open block."""
    queue_apply.reapply_refund(state, TaskId(tx.subject), tx.number)
