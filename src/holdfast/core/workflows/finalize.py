"""Finality (CHN-005, ESC-002) and eviction (ENG-004): two events, since the tables must hold what leaves memory.

Finality moves money at once. What became final stays in memory, and is read there, until the owner asks for its
eviction: only up to the event that the tables have reached.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.handlers import Commands, Events
from holdfast.core.base.values import EventNo, Height
from holdfast.core.blob.apply import evict_blobs
from holdfast.core.chain.messages import (
    BlocksFinal,
    EvictFinalTxs,
    FinalizeSettlements,
    FinalTxsEvicted,
    SettlementsFinalized,
)
from holdfast.core.chain.model import FinalBlock, TxKind, final_height
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.escrow.messages import Finalized, WithdrawalFinal
from holdfast.core.queue import apply as queue_apply
from holdfast.core.result import apply as result_apply
from holdfast.core.state import State

# ------------------------------------------------------------------------------------------------ decide


def finalize_settlements(state: State, command: FinalizeSettlements, _now_ms: int) -> Decided | Refused:
    """ESC-002: the next settlements of final blocks; steps are bounded, so that a full block blocks nothing."""
    limit = max(1, command.limit)
    events: list[Event] = [SettlementsFinalized(limit)] if _has_final_settlements(state) else []
    for transfer in islice((each for each in state.ledger.withdrawals.values() if each.height), limit):
        events.append(WithdrawalFinal(transfer.reference, transfer.owner, transfer.amount, transfer.height))
    return Decided(tuple(events), repeat_of=None if events else state.last_event)


def has_pending_settlements(state: State) -> bool:
    """Whether money of final blocks is not available, or payable, yet."""
    return _has_final_settlements(state) or any(each.height for each in state.ledger.withdrawals.values())


def _has_final_settlements(state: State) -> bool:
    return any(height <= final_height(state) for height in state.ledger.settled_by_height)


def evict_final_txs(state: State, command: EvictFinalTxs, _now_ms: int) -> Decided | Refused:
    """ENG-004: the next step of the eviction. Nothing leaves memory before the tables hold it."""
    as_of = EventNo(min(command.as_of, state.last_event))
    if not has_evictable_txs(state, as_of):
        return Decided((), repeat_of=state.last_event)
    return Decided((FinalTxsEvicted(max(1, command.limit), as_of),))


def has_evictable_txs(state: State, as_of: EventNo) -> bool:
    """Whether something that had become final by this event waits for its eviction."""
    block = next(iter(state.final_blocks.values()), None)
    is_block_due = block is not None and block.event <= as_of
    return is_block_due or next(iter(state.ledger.final_reservations), as_of + 1) <= as_of


# ------------------------------------------------------------------------------------------------ apply


def apply_finalized(state: State, event: Finalized) -> None:
    """CHN-005, ESC-002: final blocks are never rolled back, and their money is available."""
    escrow_apply.apply_finalized(state, event)
    _make_blocks_final(state, event.height)


def apply_blocks_final(state: State, event: BlocksFinal) -> None:
    """CHN-005: final blocks are never rolled back; their money becomes available in steps."""
    state.ledger.finalized_height = event.height
    _make_blocks_final(state, event.height)


def _make_blocks_final(state: State, height: Height) -> None:
    chain = state.chain
    for final in [each for each in chain.unfinalized if each <= height]:
        chain.last_final = sealed = chain.unfinalized.pop(final)
        state.final_blocks[final] = FinalBlock(state.last_event, sealed.block, sealed.txs)
        if state.ledger.withdrawals:
            withdrawn = [tx.subject.decode() for tx in sealed.txs if tx.kind is TxKind.WITHDRAWAL]
            escrow_apply.schedule_withdrawals(state, final, withdrawn)
        sealed.txs = []


def apply_settlements_finalized(state: State, event: SettlementsFinalized) -> None:
    """ESC-002: the oldest settlements become available first."""
    escrow_apply.finalize_some(state, event.count, final_height(state))


def apply_final_txs_evicted(state: State, event: FinalTxsEvicted) -> None:
    """The next results, consumptions and blocks; then settlements, with their jobs and all attempts of these."""
    _evict_blocks(state, event)
    for reservation in escrow_apply.evict_final(state, event.count, event.as_of):
        for job in queue_apply.evict(state, reservation):
            state.attempts.pop(job, None)
    evict_blobs(state, event.as_of)
    state.evicted_as_of = event.as_of


def _evict_blocks(state: State, event: FinalTxsEvicted) -> None:
    """The next transactions of blocks that were final by then; a block leaves with its last."""
    room = event.count
    for height, final in list(state.final_blocks.items()):
        if final.event > event.as_of or room <= 0:
            break
        evicted, final.txs = final.txs[:room], final.txs[room:]
        result_apply.evict_final(state, evicted, height)
        room -= len(evicted)
        if not final.txs:
            del state.final_blocks[height]


COMMANDS: Final[Commands] = {FinalizeSettlements: finalize_settlements, EvictFinalTxs: evict_final_txs}
EVENTS: Final[Events] = {
    Finalized: apply_finalized,
    BlocksFinal: apply_blocks_final,
    SettlementsFinalized: apply_settlements_finalized,
    FinalTxsEvicted: apply_final_txs_evicted,
}
