"""Deletes evidence of sessions that have been final for as long as policy says (EVD-008)."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from holdfast.core.base.errors import Refused
from holdfast.core.evidence.messages import PruneEvidence
from holdfast.core.evidence.model import SessionWatermark, work_log_place
from holdfast.core.evidence.sessions import why_not_pruned
from holdfast.engine import queries
from holdfast.engine.loop import Engine

INTERVAL_MS: Final = 60_000
SESSIONS_PER_YIELD: Final = 1_000
"""Sessions checked before other tasks of the event loop get a turn."""
_log = structlog.get_logger()


class EvidencePruner:
    """Deletes rows in bounded pages, the oldest of a session first; watermarks stay for ever."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.pruned = 0
        """Records deleted since the node started."""

    async def run_once(self) -> None:
        """Prune every session that is due."""
        if self._engine.policy.evidence.retain_days is None:
            return
        for index, watermark in enumerate(list(self._engine.undurable_state.watermarks.values())):
            if index % SESSIONS_PER_YIELD == 0:
                await asyncio.sleep(0)
            if watermark.pruned < watermark.acked and self._is_due(watermark):
                await self._prune(watermark.channel, watermark.session)

    def _is_due(self, watermark: SessionWatermark) -> bool:
        return why_not_pruned(self._engine.undurable_state, watermark, self._engine.now_ms()) is None

    async def _prune(self, channel: str, session: str) -> None:
        """As far as the tables are: rows that they do not show yet are deleted in a later run."""
        after: str | int | None = 0
        rows_max = self._engine.policy.evidence.prune_rows_max
        while after is not None:
            page = await queries.page(
                self._engine, "evidence", {"channel": channel, "session": session}, after, rows_max
            )
            if not page.rows:
                return
            until, rows = page.rows[-1].last_sequence, tuple(row.event for row in page.rows)
            logs = tuple(work_log_place(row.event, at) for row in page.rows for at in range(row.leases))
            outcome = await self._engine.submit(PruneEvidence(channel, session, until, rows, logs))
            if isinstance(outcome, Refused):
                _log.info("evidence_prune_refused", channel=channel, session=session, reason=str(outcome))
                return
            if not outcome.is_repeat:
                self.pruned += until - page.rows[0].first_sequence + 1
            after = page.next_after
