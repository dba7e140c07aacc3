"""Keeps the as-run logs of v0.1 channels up to date, in the folder that the operator configured (EVD-009).

It writes what is durable, from a cursor of its own that is stored after the entries. After a crash it may write entries
again, and the log skips those that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from holdfast.core.base.errors import Corrupt
from holdfast.core.evidence.model import SessionWatermark
from holdfast.engine.loop import Engine
from holdfast.engine.queries.evidence import GetWatermark, ListRetrovueSessions
from holdfast.history.asrun_log import AsRunLog, StoredRecords
from holdfast.ports import Files

INTERVAL_MS: Final = 5_000
LINES_PER_WRITE: Final = 1_000
ReadLines = Callable[[Engine, SessionWatermark, int, int], StoredRecords]
"""The records of a session from one sequence to another."""
_log = structlog.get_logger()


class AsRunWriter:
    """One folder per channel; an idle channel costs one comparison."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine, folder: Callable[[str], Files], read_lines: ReadLines) -> None:
        self._engine, self._folder, self._read_lines = engine, folder, read_lines
        self._logs: dict[str, AsRunLog] = {}
        self._written: dict[str, int] = {}
        self._last_reported: dict[str, str] = {}
        """Why a session's log waits, as it was last logged: the same reason is logged once."""

    async def run_once(self) -> None:
        """Write everything that is durable by now."""
        for watermark in await self._engine.query_durable(ListRetrovueSessions()):
            acked = watermark.acked
            if self._written.get(watermark.id, 0) < acked:
                try:
                    await self._write(watermark, acked)
                except Corrupt as fault:  # a damaged log or session does not block the others
                    self._report_waiting(watermark, str(fault))

    def _report_waiting(self, watermark: SessionWatermark, reason: str) -> None:
        if self._last_reported.get(watermark.id) != reason:
            _log.error("as_run_log_waiting", channel=watermark.channel, session=watermark.session, reason=reason)
        self._last_reported[watermark.id] = reason

    async def _write(self, watermark: SessionWatermark, acked: int) -> None:
        log = self._logs.get(watermark.channel)
        if log is None:
            log = self._logs[watermark.channel] = AsRunLog(self._folder(watermark.channel), watermark.channel)
        last, pruned = await log.written_until(watermark.session), watermark.pruned
        while (last := max(last, pruned)) < acked:
            until = min(acked, last + LINES_PER_WRITE)
            try:
                lines = [line async for _, line in self._read_lines(self._engine, watermark, last + 1, until)]
            except Corrupt:
                now = await self._engine.query_durable(GetWatermark(watermark.channel, watermark.session))
                if now is None or now.pruned <= last:
                    raise
                pruned = now.pruned
                continue  # pruned while they were read: write the rest
            await log.write(lines)
            await log.record_written(watermark.session, until)
            last = until
        self._written[watermark.id] = acked
        self._last_reported.pop(watermark.id, None)
