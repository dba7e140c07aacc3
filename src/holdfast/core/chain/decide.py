"""Whether a block may be sealed or rolled back."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.values import EventNo, Height, Network
from holdfast.core.chain.header import header_hash
from holdfast.core.chain.messages import (
    BlockRolledBack,
    BlockSealed,
    BlocksFinal,
    EvictFinalTxs,
    FinalizeSettlements,
    FinalTxsEvicted,
    RollBackBlocks,
    SealBlock,
    SettlementsFinalized,
    TransactionsReincluded,
)
from holdfast.core.chain.model import HasChain, final_height, next_header
from holdfast.core.escrow.messages import Finalized

AT_ONCE_MAX: Final = 1_024
"""The most settlements that become final in one event; more of them become final in steps."""


def seal_block(state: HasChain, command: SealBlock, now_ms: int) -> Decided | Refused:
    """CHN-001, CHN-002: all events so far are in the block; later ones are in the block above it."""
    header = next_header(state, state.last_event, now_ms, command.proposer)
    hash_ = header_hash(header)
    sealed = BlockSealed(header.height, hash_, now_ms, command.proposer, command.sign(hash_))
    final = Height(header.height - state.policy.chain.finality_depth)
    if final <= final_height(state):
        return Decided((sealed,))
    waiting = sum(len(ids) for height, ids in state.ledger.settled_by_height.items() if height <= final)
    return Decided((sealed, Finalized(final) if waiting <= AT_ONCE_MAX else BlocksFinal(final)))


def finalize_settlements(state: HasChain, command: FinalizeSettlements, _now_ms: int) -> Decided | Refused:
    """ESC-002: the next settlements of final blocks; steps are bounded, so that a full block blocks nothing."""
    if not has_pending_settlements(state):
        return Decided((), repeat_of=state.last_event)
    return Decided((SettlementsFinalized(max(1, command.limit)),))


def has_pending_settlements(state: HasChain) -> bool:
    """Whether money of final blocks is not available yet."""
    return any(height <= final_height(state) for height in state.ledger.settled_by_height)


def evict_final_txs(state: HasChain, command: EvictFinalTxs, _now_ms: int) -> Decided | Refused:
    """ENG-004: the next step of the eviction. Nothing leaves memory before the tables hold it."""
    as_of = EventNo(min(command.as_of, state.last_event))
    if not has_evictable_txs(state, as_of):
        return Decided((), repeat_of=state.last_event)
    return Decided((FinalTxsEvicted(max(1, command.limit), as_of),))


def has_evictable_txs(state: HasChain, as_of: EventNo) -> bool:
    """Whether something that had become final by this event waits for its eviction."""
    block = next(iter(state.final_blocks.values()), None)
    is_block_due = block is not None and block.event <= as_of
    return is_block_due or next(iter(state.ledger.final_reservations), as_of + 1) <= as_of


def roll_back(state: HasChain, command: RollBackBlocks, _now_ms: int) -> Decided | Refused:
    """CHN-003, CHN-005: from the head down, one block at a time, never below the last final block."""
    chain, to = state.chain, command.height
    if state.policy.network is not Network.DEVELOPMENT:
        return Refused("CHN-003", "only a development network rolls back on demand", 'network = "development"')
    if to < (final := final_height(state)):
        return Refused(
            "CHN-005", f"blocks up to {final} are final, {to} is below", "only later ones can be rolled back"
        )
    if to > chain.head.height:
        return Refused("CHN-003", f"the chain ends at {chain.head.height}, there is no block {to}", name="NotFound")
    if to == chain.head.height:
        return Decided((), repeat_of=state.last_event)
    waiting = len(chain.open.txs) + sum(len(chain.unfinalized[h].txs) for h in chain.unfinalized if h > to)
    events: list[Event] = [BlockRolledBack(Height(chain.head.height + 1), b"")]  # the open block first
    events += [BlockRolledBack(h, chain.unfinalized[h].block.hash) for h in reversed(chain.unfinalized) if h > to]
    return Decided((*events, TransactionsReincluded(Height(to + 1), waiting)))
