"""Whether a block may be sealed or rolled back."""

from __future__ import annotations

from itertools import islice
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.values import EventNo, Height, Network
from holdfast.core.chain.header import header_hash
from holdfast.core.chain.messages import (
    BlockRolledBack,
    BlockSealed,
    BlocksFinal,
    ContinueRollback,
    EvictFinalTxs,
    FinalizeSettlements,
    FinalTxsEvicted,
    RollBackBlocks,
    RollbackFinished,
    RollbackStarted,
    SealBlock,
    SettlementsFinalized,
    TransactionsReincluded,
    TransactionsUnlinked,
)
from holdfast.core.chain.model import HasChain, Tx, TxKind, final_height, next_header
from holdfast.core.escrow.messages import Finalized, WithdrawalFinal

AT_ONCE_MAX: Final = 1_024
"""The most settlements that become final in one event; more of them become final in steps."""
BLOCK_COST: Final = 16
"""What rolling back an empty block costs, in transactions."""
WITHOUT_EFFECT: Final = 4
"""How many admissions, which only need a leaf, a step includes for each transaction with an effect."""


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
    limit = max(1, command.limit)
    events: list[Event] = [SettlementsFinalized(limit)] if _has_final_settlements(state) else []
    for transfer in islice((each for each in state.ledger.withdrawals.values() if each.height), limit):
        events.append(WithdrawalFinal(transfer.reference, transfer.owner, transfer.amount, transfer.height))
    return Decided(tuple(events), repeat_of=None if events else state.last_event)


def has_pending_settlements(state: HasChain) -> bool:
    """Whether money of final blocks is not available, or payable, yet."""
    return _has_final_settlements(state) or any(each.height for each in state.ledger.withdrawals.values())


def _has_final_settlements(state: HasChain) -> bool:
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
    if chain.rollback is not None and to == chain.head.height:
        return Decided((), repeat_of=chain.rollback.started)
    if refusal := why_not_while_rolling_back(state):
        return refusal
    if to > chain.head.height:
        return Refused("CHN-003", f"the chain ends at {chain.head.height}, there is no block {to}", name="NotFound")
    if to == chain.head.height:
        return Decided((), repeat_of=state.last_event)
    above = [height for height in reversed(chain.unfinalized) if height > to]
    if len(above) + sum(_size(state, height) for height in (state.open_height, *above)) > command.at_once_max:
        return Decided((RollbackStarted(to),))
    waiting = len(chain.open.txs) + sum(len(chain.unfinalized[height].txs) for height in above)
    events: list[Event] = [BlockRolledBack(Height(chain.head.height + 1), b"")]  # the open block first
    events += [BlockRolledBack(height, chain.unfinalized[height].block.hash) for height in above]
    return Decided((*events, TransactionsReincluded(Height(to + 1), waiting)))


def why_not_while_rolling_back(state: HasChain) -> Refused | None:
    """CHN-003, CHN-004: what moves the chain or the money of its blocks waits for the end of a rollback."""
    if state.chain.rollback is None:
        return None
    message = f"a rollback to block {state.chain.head.height} is running"
    return Refused("CHN-003", message, "try again when it has finished", "RollbackRunning")


def continue_rollback(state: HasChain, command: ContinueRollback, _now_ms: int) -> Decided | Refused:
    """CHN-003, CHN-004: the next bounded step, so that other commands are decided between two of them."""
    rollback, limit = state.chain.rollback, max(1, command.limit)
    if rollback is None:
        return Decided((), repeat_of=state.last_event)
    if rollback.height:
        return Decided((TransactionsUnlinked(limit),))
    if events := _next_blocks(state, limit):
        return Decided(tuple(events))
    head, count = state.chain.head.height, _count_next(rollback.pool, limit)
    reincluded = TransactionsReincluded(Height(head + 1), count)
    return Decided((reincluded,) if count < len(rollback.pool) else (reincluded, RollbackFinished(head)))


def _next_blocks(state: HasChain, limit: int) -> list[Event]:
    """RES-006: from the top down, each with all its effects, so far as they fit; of a fuller block as many as fit."""
    chain, room, events = state.chain, limit, list[Event]()
    for height in reversed(chain.unfinalized):
        size = _size(state, height)
        if height == chain.head.height or room <= 0 or (events and size > room):
            break
        unlinked = TransactionsUnlinked(max(1, min(size, limit)))
        events += [BlockRolledBack(height, chain.unfinalized[height].block.hash), unlinked]
        room -= max(size, BLOCK_COST)
    return events


def _size(state: HasChain, height: Height) -> int:
    """How much there is to undo in the block of this height."""
    block = state.chain.unfinalized.get(height) or state.chain.open
    return max(len(block.txs), len(state.ledger.settled_by_height.get(height, ())))


def _count_next(pool: list[Tx], limit: int) -> int:
    """How many of the waiting transactions one step includes."""
    with_effect = 0
    for count, tx in enumerate(pool[: limit * WITHOUT_EFFECT]):
        with_effect += tx.kind is not TxKind.ADMISSION
        if with_effect > limit:
            return count
    return min(len(pool), limit * WITHOUT_EFFECT)
