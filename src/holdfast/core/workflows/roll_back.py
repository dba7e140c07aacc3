"""Rolling blocks back (CHN-003, CHN-004, RES-006): from the head down; inclusion is undone, then applied again."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.handlers import Commands, Events
from holdfast.core.base.values import ProviderId
from holdfast.core.chain import apply as chain_apply
from holdfast.core.chain import decide as chain_decide
from holdfast.core.chain.messages import BlockRolledBack, RollBackBlocks, TransactionsReincluded
from holdfast.core.chain.model import Tx, TxKind
from holdfast.core.provider.apply import reapply_slash
from holdfast.core.result import apply as result_apply
from holdfast.core.result.messages import ConsumptionDropped
from holdfast.core.result.readability import is_valid_above
from holdfast.core.state import State


def roll_back(state: State, command: RollBackBlocks, now_ms: int) -> Decided | Refused:
    """CHN-003, RES-005: a consumption that is not valid in the block where it is included again is dropped with it."""
    decided = chain_decide.roll_back(state, command, now_ms)
    if isinstance(decided, Refused) or not decided.events:
        return decided
    head = command.height
    dropped = [
        ConsumptionDropped(consumption.task_id, consumption.caller, consumption.event)
        for consumption in state.consumptions.values()
        if consumption.height > head and not is_valid_above(state, consumption, head)
    ]
    return Decided((*decided.events, *dropped))


def apply_block_rolled_back(state: State, event: BlockRolledBack) -> None:
    """RES-006: results and consumptions of the block are unlinked, then its settlements and itself are rolled back."""
    result_apply.unlink_block(state, event)
    chain_apply.apply_rolled_back(state, event)


def apply_reincluded(state: State, event: TransactionsReincluded) -> None:
    """CHN-004: the transactions of orphaned blocks, in their order, in the open block."""
    chain_apply.apply_reincluded(state, event, REAPPLY)


def _reapply_slash(state: State, tx: Tx) -> None:
    reapply_slash(state, ProviderId(tx.subject), tx.number)


REAPPLY: Final[dict[TxKind, chain_apply.Reapply]] = {
    TxKind.CANCELLATION: chain_apply.reapply_refund,
    TxKind.EXPIRY: chain_apply.reapply_refund,
    TxKind.FAILURE: chain_apply.reapply_refund,
    TxKind.PROOF: result_apply.reapply_resolution,
    TxKind.SLASH: _reapply_slash,
    TxKind.CONSUMPTION: result_apply.reapply_consumption,
}
"""The effects of being included in a block. An admission has none."""
COMMANDS: Final[Commands] = {RollBackBlocks: roll_back}
EVENTS: Final[Events] = {BlockRolledBack: apply_block_rolled_back, TransactionsReincluded: apply_reincluded}
