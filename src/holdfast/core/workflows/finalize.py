"""Finality (CHN-005, ESC-002): money settled in final blocks becomes available, and their records leave memory."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Events
from holdfast.core.chain import apply as chain_apply
from holdfast.core.chain.messages import BlocksFinal, FinalTxsEvicted
from holdfast.core.escrow.messages import Finalized
from holdfast.core.result import apply as result_apply
from holdfast.core.state import State


def apply_finalized(state: State, event: Finalized) -> None:
    """All at once, for blocks with few settlements: results are evicted before the chain drops their blocks."""
    result_apply.evict_final(state, event.height)
    chain_apply.apply_finalized(state, event)


def apply_final_txs_evicted(state: State, event: FinalTxsEvicted) -> None:
    """One step of the eviction that `BlocksFinal` announced."""
    result_apply.evict_some_final(state, event)
    chain_apply.apply_final_txs_evicted(state, event)


EVENTS: Final[Events] = {
    Finalized: apply_finalized,
    BlocksFinal: chain_apply.apply_blocks_final,
    FinalTxsEvicted: apply_final_txs_evicted,
}
