"""Rolling blocks back (CHN-003, CHN-004, RES-006): from the head down; inclusion is undone, then applied again.

A small rollback is one decision. A larger one is started by an event and goes on in bounded steps: first every block is
rolled back, then the pool is included. Other commands are decided in between; their transactions join the pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Command, Decided, Event
from holdfast.core.base.handlers import Commands, Decide, Events
from holdfast.core.base.merkle import Frontier
from holdfast.core.base.values import I64_MAX, EventNo, Height, Network
from holdfast.core.blob.apply import orphan_blobs
from holdfast.core.chain.messages import (
    BlockRolledBack,
    ContinueRollback,
    RollBackBlocks,
    RollbackFinished,
    RollbackStarted,
    SealBlock,
    TransactionsReincluded,
    TransactionsUnlinked,
)
from holdfast.core.chain.model import (
    BlockStatus,
    OpenBlock,
    Rollback,
    Tx,
    TxKind,
    UnfinalizedBlock,
    copy_frontier,
    final_height,
    genesis_chain,
    why_not_while_rolling_back,
)
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.escrow.messages import Charge, Finalize, Refund, RollBackSettlements
from holdfast.core.result import apply as result_apply
from holdfast.core.result.messages import ConsumptionDropped
from holdfast.core.result.model import Consumption
from holdfast.core.result.readability import is_valid_above
from holdfast.core.state import State
from holdfast.core.workflows.include import include_again

BLOCK_COST: Final = 16
"""What rolling back an empty block costs, in transactions."""
WITHOUT_EFFECT: Final = 4
"""How many admissions, which only need a leaf, a step includes for each transaction with an effect."""

# ------------------------------------------------------------------------------------------------ decide


def roll_back(state: State, command: RollBackBlocks, _now_ms: int) -> Decided | Refused:
    """CHN-003, CHN-005: from the head down, one block at a time, never below the last final block.

    RES-005: a consumption that is not valid in the block where it is included again is dropped with it.
    """
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
    consumed = (consumption for consumption in state.consumptions.values() if consumption.height > to)
    return Decided((*events, TransactionsReincluded(Height(to + 1), waiting), *_dropped(state, consumed, to)))


def continue_rollback(state: State, command: ContinueRollback, _now_ms: int) -> Decided | Refused:
    """CHN-003, CHN-004: the next bounded step, so that other commands are decided between two of them.

    Consumptions that it includes where they are not valid are dropped with it (RES-005).
    """
    rollback, limit, head = state.chain.rollback, max(1, command.limit), state.chain.head.height
    if rollback is None:
        return Decided((), repeat_of=state.last_event)
    if rollback.height:
        return Decided((TransactionsUnlinked(limit),))
    if events := _next_blocks(state, limit):
        return Decided(tuple(events))
    count = _count_next(rollback.pool, limit)
    numbers = {tx.number for tx in rollback.pool[:count] if tx.kind is TxKind.CONSUMPTION}
    included = (consumption for consumption in state.consumptions.values() if consumption.event in numbers)
    dropped = _dropped(state, included, head) if numbers else []
    finished = [RollbackFinished(head)] if count == len(rollback.pool) else []
    return Decided((TransactionsReincluded(Height(head + 1), count), *dropped, *finished))


def _next_blocks(state: State, limit: int) -> list[Event]:
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


def _size(state: State, height: Height) -> int:
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


def _dropped(state: State, consumptions: Iterable[Consumption], head: Height) -> list[Event]:
    return [
        ConsumptionDropped(consumption.task_id, consumption.caller, consumption.event)
        for consumption in consumptions
        if not is_valid_above(state, consumption, head)
    ]


def unless_rolling_back(decide: Decide) -> Decide:
    """The same decision, refused while a rollback is under way."""

    def decide_later(state: State, command: Command, now_ms: int) -> Decided | Refused:
        return why_not_while_rolling_back(state) or decide(state, command, now_ms)

    return decide_later


# ------------------------------------------------------------------------------------------------ apply


def apply_rollback_started(state: State, event: RollbackStarted) -> None:
    """CHN-003: the chain ends at this block from here on; the open block is the first one to be undone.

    The blobs of all blocks above wait for a block at once; the rest is undone in steps.
    """
    chain = state.chain
    chain.rollback = Rollback(state.last_event)
    _move_to_pool(chain.rollback, chain.open.txs, state.open_height)
    _return_to(state, event.height)
    orphan_blobs(state, event.height)


def apply_block_rolled_back(state: State, event: BlockRolledBack) -> None:
    """CHN-003: the topmost block is orphaned; its transactions wait in the pool, before later ones.

    RES-006: its results and consumptions are unlinked, its settlements rolled back; in steps by the events after this
    one. Its results are not readable any more in either case.
    """
    chain = state.chain
    rollback = chain.rollback = chain.rollback or Rollback(EventNo(0))
    txs = chain.open.txs
    if event.hash:
        orphaned = chain.unfinalized.pop(event.height)
        orphaned.block.status = BlockStatus.ORPHANED
        state.touched["block"][orphaned.block.event] = orphaned.block
        txs = orphaned.txs
    _move_to_pool(rollback, txs, event.height)
    orphan_blobs(state, Height(event.height - 1))
    if not rollback.started:
        _return_to(state, next(reversed(chain.unfinalized), Height(0)))
        _unlink(state, rollback, I64_MAX)


def apply_unlinked(state: State, event: TransactionsUnlinked) -> None:
    """RES-006: the last transactions and settlements of the block, from its end."""
    assert state.chain.rollback is not None
    _unlink(state, state.chain.rollback, event.count)


def _move_to_pool(rollback: Rollback, txs: list[Tx], height: Height) -> None:
    rollback.pool, rollback.linked, rollback.height = txs + rollback.pool, len(txs), height


def _return_to(state: State, height: Height) -> None:
    """The block of this height, or else the last final one, is the head, under an empty open block."""
    chain = state.chain
    genesis = UnfinalizedBlock(genesis_chain(state.policy).head, [], Frontier())
    sealed = chain.unfinalized.get(height) or chain.last_final or genesis
    chain.head, chain.open, chain.log = sealed.block, OpenBlock(), copy_frontier(sealed.log)


def _unlink(state: State, rollback: Rollback, count: int) -> None:
    first = max(0, rollback.linked - count)
    result_apply.unlink(state, rollback.pool[first : rollback.linked], rollback.height)
    escrow_apply.roll_back_settlements(state, rollback.height, count)
    rollback.linked = first
    if not first and rollback.height not in state.ledger.settled_by_height:
        rollback.height = Height(0)


def apply_reincluded(state: State, event: TransactionsReincluded) -> None:
    """CHN-004: the transactions of orphaned blocks are included in the open block, in their order."""
    chain = state.chain
    rollback = chain.rollback or Rollback(EventNo(0))
    is_count = event.count <= len(rollback.pool) if rollback.started else event.count == len(rollback.pool)
    if not is_count or rollback.linked or event.height != chain.head.height + 1:
        message = f"{len(rollback.pool)} transactions wait for block {chain.head.height + 1}, not {event}"
        raise Corrupt("CHN-004", message)
    include_again(state, rollback.pool[: event.count])
    del rollback.pool[: event.count]
    if not rollback.started:
        chain.rollback = None


def apply_rollback_finished(state: State, event: RollbackFinished) -> None:
    """CHN-004: nothing waits any more."""
    chain = state.chain
    if chain.rollback is None or chain.rollback.pool or event.height != chain.head.height:
        raise Corrupt("CHN-004", f"no rollback to block {event.height} is at its end")
    chain.rollback = None


COMMANDS: Final[Commands] = {RollBackBlocks: roll_back, ContinueRollback: continue_rollback}
EVENTS: Final[Events] = {
    RollbackStarted: apply_rollback_started,
    BlockRolledBack: apply_block_rolled_back,
    TransactionsUnlinked: apply_unlinked,
    TransactionsReincluded: apply_reincluded,
    RollbackFinished: apply_rollback_finished,
}
HELD_BACK: Final = (SealBlock, Charge, Refund, Finalize, RollBackSettlements)
"""Commands that wait for the end of a rollback: they would seal its open block, or settle money beside it."""
