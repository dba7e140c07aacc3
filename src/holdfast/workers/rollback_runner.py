"""Carries a rollback to its end, step by step (CHN-003); after a restart it goes on where the journal ends."""

from __future__ import annotations

from typing import Final

from holdfast.core.chain.messages import ContinueRollback
from holdfast.engine.loop import Engine

INTERVAL_MS: Final = 100
"""How late the first step may be."""
STEP: Final = ContinueRollback()


class RollbackRunner:
    """One command per step, each durable before the next: other commands are decided in between."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine, step: ContinueRollback = STEP) -> None:
        self._engine, self._step = engine, step

    async def run_once(self) -> None:
        """All steps of the rollback that is under way, if there is one."""
        while self._engine.undurable_state.chain.rollback is not None:
            await self._engine.submit(self._step)
