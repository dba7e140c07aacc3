"""Finality (CHN-005, ESC-002) and eviction (ENG-004): two events, since the tables must hold what leaves memory.

Finality moves money at once. What became final stays in memory, and is read there, until the owner asks for its
eviction: only up to the event that the tables have reached.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Events
from holdfast.core.blob.apply import evict_blobs
from holdfast.core.chain import apply as chain_apply
from holdfast.core.chain.messages import BlocksFinal, FinalTxsEvicted, SettlementsFinalized
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.escrow.messages import Finalized
from holdfast.core.queue import apply as queue_apply
from holdfast.core.result import apply as result_apply
from holdfast.core.state import State


def apply_final_txs_evicted(state: State, event: FinalTxsEvicted) -> None:
    """The next results, consumptions and blocks; then settlements, with their jobs and all attempts of these."""
    result_apply.evict_final(state, event)
    for reservation in escrow_apply.evict_final(state, event.count, event.as_of):
        for job in queue_apply.evict(state, reservation):
            state.attempts.pop(job, None)
    evict_blobs(state, event.as_of)
    state.evicted_as_of = event.as_of


EVENTS: Final[Events] = {
    Finalized: chain_apply.apply_finalized,
    BlocksFinal: chain_apply.apply_blocks_final,
    SettlementsFinalized: chain_apply.apply_settlements_finalized,
    FinalTxsEvicted: apply_final_txs_evicted,
}
