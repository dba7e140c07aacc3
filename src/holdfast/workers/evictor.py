"""Evicts what became final from memory, once the tables hold it (ENG-004), in bounded steps."""

from __future__ import annotations

from typing import Final

from holdfast.core.chain.messages import EvictFinalTxs
from holdfast.core.workflows.finalize import has_evictable_txs
from holdfast.engine.loop import Engine

INTERVAL_MS: Final = 200
BLOCKS_MAX: Final = 16
"""Final blocks without a transaction that stay until there is more to evict: an idle chain writes no more events."""


class Evictor:
    """Asks for evictions up to the event that the tables have reached."""

    starts_at_once = False
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run_once(self) -> None:
        """One command per step: other commands come in between."""
        while self._is_worth_it():
            await self._engine.submit(EvictFinalTxs(self._engine.tables_progress.checkpoint.last))

    def _is_worth_it(self) -> bool:
        state = self._engine.undurable_state
        if not has_evictable_txs(state, self._engine.tables_progress.checkpoint.last):
            return False
        blocks = state.final_blocks.values()
        has_content = bool(state.ledger.final_reservations) or any(block.txs for block in blocks)
        return has_content or len(blocks) > BLOCKS_MAX
