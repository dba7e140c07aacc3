"""Rolling blocks back (CHN-003, CHN-004, RES-006): from the head down; inclusion is undone, then applied again.

A small rollback is one decision. A larger one is started by an event and goes on in bounded steps: first every block is
rolled back, then the pool is included. Other commands are decided in between; their transactions join the pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Decided, Event
from holdfast.core.base.handlers import Commands, Decide, Events
from holdfast.core.base.values import I64_MAX, Height
from holdfast.core.blob.apply import orphan_blobs
from holdfast.core.chain import apply as chain_apply
from holdfast.core.chain import decide as chain_decide
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
from holdfast.core.chain.model import TxKind
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.escrow.messages import Charge, Finalize, Refund, RollBackSettlements
from holdfast.core.result import apply as result_apply
from holdfast.core.result.messages import ConsumptionDropped
from holdfast.core.result.model import Consumption
from holdfast.core.result.readability import is_valid_above
from holdfast.core.state import State
from holdfast.core.workflows.include import include_again

# ------------------------------------------------------------------------------------------------ decide


def roll_back(state: State, command: RollBackBlocks, now_ms: int) -> Decided | Refused:
    """CHN-003, RES-005: a consumption that is not valid in the block where it is included again is dropped with it."""
    decided = chain_decide.roll_back(state, command, now_ms)
    if isinstance(decided, Refused) or not decided.events or isinstance(decided.events[0], RollbackStarted):
        return decided
    above = (consumption for consumption in state.consumptions.values() if consumption.height > command.height)
    return Decided((*decided.events, *_dropped(state, above, command.height)))


def continue_rollback(state: State, command: ContinueRollback, now_ms: int) -> Decided | Refused:
    """The next step; consumptions that it includes where they are not valid are dropped with it (RES-005)."""
    decided = chain_decide.continue_rollback(state, command, now_ms)
    rollback = state.chain.rollback
    if isinstance(decided, Refused) or rollback is None or not isinstance(decided.events[0], TransactionsReincluded):
        return decided
    reincluded, *finished = decided.events
    numbers = {tx.number for tx in rollback.pool[: decided.events[0].count] if tx.kind is TxKind.CONSUMPTION}
    included = (consumption for consumption in state.consumptions.values() if consumption.event in numbers)
    dropped = _dropped(state, included, state.chain.head.height) if numbers else []
    return Decided((reincluded, *dropped, *finished))


def _dropped(state: State, consumptions: Iterable[Consumption], head: Height) -> list[Event]:
    return [
        ConsumptionDropped(consumption.task_id, consumption.caller, consumption.event)
        for consumption in consumptions
        if not is_valid_above(state, consumption, head)
    ]


def unless_rolling_back(decide: Decide) -> Decide:
    """The same decision, refused while a rollback is under way."""

    def decide_later(state: State, command: Command, now_ms: int) -> Decided | Refused:
        return chain_decide.why_not_while_rolling_back(state) or decide(state, command, now_ms)

    return decide_later


# ------------------------------------------------------------------------------------------------ apply


def apply_block_rolled_back(state: State, event: BlockRolledBack) -> None:
    """RES-006: results and consumptions of the block are unlinked, and its settlements and itself are rolled back.

    In steps the events after this one undo its effects; its results are not readable any more in either case.
    """
    chain_apply.apply_rolled_back(state, event)
    orphan_blobs(state, Height(event.height - 1))
    rollback = state.chain.rollback
    assert rollback is not None
    if not rollback.started:
        _unlink(state, I64_MAX)


def apply_rollback_started(state: State, event: RollbackStarted) -> None:
    """CHN-003: the blobs of all blocks above wait for a block at once; the rest is undone in steps."""
    chain_apply.apply_rollback_started(state, event)
    orphan_blobs(state, event.height)


def apply_unlinked(state: State, event: TransactionsUnlinked) -> None:
    """RES-006: the last transactions and settlements of the block, from its end."""
    _unlink(state, event.count)


def _unlink(state: State, count: int) -> None:
    rollback = state.chain.rollback
    assert rollback is not None
    first = max(0, rollback.linked - count)
    result_apply.unlink(state, rollback.pool[first : rollback.linked], rollback.height)
    escrow_apply.roll_back_settlements(state, rollback.height, count)
    rollback.linked = first
    if not first and rollback.height not in state.ledger.settled_by_height:
        rollback.height = Height(0)


def apply_reincluded(state: State, event: TransactionsReincluded) -> None:
    """CHN-004: the transactions of orphaned blocks, in their order, in the open block."""
    chain_apply.apply_reincluded(state, event, partial(include_again, state))


COMMANDS: Final[Commands] = {RollBackBlocks: roll_back, ContinueRollback: continue_rollback}
EVENTS: Final[Events] = {
    RollbackStarted: apply_rollback_started,
    BlockRolledBack: apply_block_rolled_back,
    TransactionsUnlinked: apply_unlinked,
    TransactionsReincluded: apply_reincluded,
    RollbackFinished: chain_apply.apply_rollback_finished,
}
HELD_BACK: Final = (SealBlock, Charge, Refund, Finalize, RollBackSettlements)
"""Commands that wait for the end of a rollback: they would seal its open block, or settle money beside it."""
