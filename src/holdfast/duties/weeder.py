"""The weeder: lets go of evidence whose session has been final for as long as policy says (EVD-008)."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from holdfast.core.evidence.marks import Mark
from holdfast.core.evidence.sessions import PruneEvidence, why_not_pruned
from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.engine import read
from holdfast.engine.loop import Engine
from holdfast.ports import Clock

LOOK_MS: Final = 60_000
MARKS_A_TURN: Final = 1_000
"""How many sessions are looked at before others get a turn."""
_log = structlog.get_logger()


class Weeder:
    """Rows go in bounded lots, the oldest of a session first; marks stay for ever."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self.pruned = 0
        """Records let go of since the node began."""

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except (Unavailable, Corrupt) as fault:
                _log.info("no evidence is let go of", because=str(fault))
            await self._clock.sleep(LOOK_MS)

    async def look(self) -> None:
        """Everything that is due by now."""
        if self._engine.policy.evidence.retain_days is None:
            return
        for at, mark in enumerate(list(self._engine.state.marks.values())):
            if at % MARKS_A_TURN == 0:
                await asyncio.sleep(0)
            if mark.pruned < mark.acked and self._is_due(mark):
                await self._weed(mark.channel, mark.session)

    def _is_due(self, mark: Mark) -> bool:
        return why_not_pruned(self._engine.state, mark, self._engine.now_ms()) is None

    async def _weed(self, channel: str, session: str) -> None:
        """As far as the tables have come: what they do not show yet goes the next time."""
        after: str | int | None = 0
        lot = self._engine.policy.evidence.prune_rows_max
        while after is not None:
            page = await read.page(self._engine, "evidence", {"channel": channel, "session": session}, after, lot)
            if not page.rows:
                return
            until, rows = page.rows[-1].last_sequence, tuple(row.event for row in page.rows)
            outcome = await self._engine.submit(PruneEvidence(channel, session, until, rows))
            if isinstance(outcome, Refused):
                _log.info("evidence is kept", because=str(outcome))
                return
            if not outcome.is_repeat:
                self.pruned += until - page.rows[0].first_sequence + 1
            after = page.next_after
