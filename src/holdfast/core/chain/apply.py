"""What an event does to the chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.merkle import Frontier
from holdfast.core.base.values import EventNo, Height
from holdfast.core.chain.header import SignedHeader, header_hash
from holdfast.core.chain.messages import (
    BlockRolledBack,
    BlockSealed,
    BlocksFinal,
    RollbackFinished,
    RollbackStarted,
    SettlementsFinalized,
    TransactionsReincluded,
)
from holdfast.core.chain.model import (
    BlockStatus,
    FinalBlock,
    HasChain,
    OpenBlock,
    Rollback,
    Tx,
    TxKind,
    UnfinalizedBlock,
    block_of,
    copy_frontier,
    final_height,
    genesis_chain,
    next_header,
)
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.escrow.messages import Finalized


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
        if state.ledger.withdrawals:
            withdrawn = [tx.subject.decode() for tx in sealed.txs if tx.kind is TxKind.WITHDRAWAL]
            escrow_apply.schedule_withdrawals(state, final, withdrawn)
        sealed.txs = []


def apply_settlements_finalized(state: HasChain, event: SettlementsFinalized) -> None:
    """ESC-002: the oldest settlements become available first."""
    escrow_apply.finalize_some(state, event.count, final_height(state))


def apply_rollback_started(state: HasChain, event: RollbackStarted) -> None:
    """CHN-003: the chain ends at this block from here on; the open block is the first one to be undone."""
    chain = state.chain
    chain.rollback = Rollback(state.last_event)
    _move_to_pool(chain.rollback, chain.open.txs, state.open_height)
    _return_to(state, event.height)


def apply_rolled_back(state: HasChain, event: BlockRolledBack) -> None:
    """CHN-003: the topmost block is orphaned; its transactions wait in the pool, before later ones."""
    chain = state.chain
    rollback = chain.rollback = chain.rollback or Rollback(EventNo(0))
    txs = chain.open.txs
    if event.hash:
        orphaned = chain.unfinalized.pop(event.height)
        orphaned.block.status = BlockStatus.ORPHANED
        state.touched["block"][orphaned.block.event] = orphaned.block
        txs = orphaned.txs
    _move_to_pool(rollback, txs, event.height)
    if not rollback.started:
        _return_to(state, next(reversed(chain.unfinalized), Height(0)))


def _move_to_pool(rollback: Rollback, txs: list[Tx], height: Height) -> None:
    rollback.pool, rollback.linked, rollback.height = txs + rollback.pool, len(txs), height


def _return_to(state: HasChain, height: Height) -> None:
    """The block of this height, or else the last final one, is the head, under an empty open block."""
    chain = state.chain
    genesis = UnfinalizedBlock(genesis_chain(state.policy).head, [], Frontier())
    sealed = chain.unfinalized.get(height) or chain.last_final or genesis
    chain.head, chain.open, chain.log = sealed.block, OpenBlock(), copy_frontier(sealed.log)


def apply_reincluded(state: HasChain, event: TransactionsReincluded, include: Callable[[Sequence[Tx]], None]) -> None:
    """CHN-004: the transactions of orphaned blocks are included in the open block, in their order."""
    chain = state.chain
    rollback = chain.rollback or Rollback(EventNo(0))
    is_count = event.count <= len(rollback.pool) if rollback.started else event.count == len(rollback.pool)
    if not is_count or rollback.linked or event.height != chain.head.height + 1:
        message = f"{len(rollback.pool)} transactions wait for block {chain.head.height + 1}, not {event}"
        raise Corrupt("CHN-004", message)
    include(rollback.pool[: event.count])
    del rollback.pool[: event.count]
    if not rollback.started:
        chain.rollback = None


def apply_rollback_finished(state: HasChain, event: RollbackFinished) -> None:
    """CHN-004: nothing waits any more."""
    chain = state.chain
    if chain.rollback is None or chain.rollback.pool or event.height != chain.head.height:
        raise Corrupt("CHN-004", f"no rollback to block {event.height} is at its end")
    chain.rollback = None
