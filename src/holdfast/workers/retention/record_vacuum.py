"""Replaces records by tombstones (RET-002, pass 3); these stay until the audit window ends, leaves stay for ever."""

from __future__ import annotations

from itertools import takewhile

from holdfast.core.base.values import EventNo
from holdfast.core.retention.messages import EndAudit, PageRange, Vacuum
from holdfast.core.retention.model import Tombstone
from holdfast.core.tables import record_from_row
from holdfast.engine.loop import Engine
from holdfast.engine.queries.retention import RetentionView
from holdfast.engine.retention_report import RetentionReport
from holdfast.workers.retention.candidates import PAGE, BlockAges, is_accepted, load_candidates

BYTES_STILL_HELD = "their bytes are not deleted yet"
NOT_EXPIRED = "the chain is below their expires_at, or that of one before them"


class RecordVacuum:
    """Pass 3, page by page: first records, then tombstones."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._block_ages = BlockAges(engine)

    async def vacuum_records(
        self, view: RetentionView, after: EventNo, rows_max: int, report: RetentionReport
    ) -> EventNo:
        """One page of records that are older than the cold tier keeps them, up to the first that has not expired."""
        days = self._engine.policy.result.retain_cold_days
        highest = await self._block_ages.highest_older_than(days, view.watermark)
        results = await load_candidates(self._engine, after, highest, rows_max)
        expired = list(takewhile(lambda result: result.expires_at <= view.head, results))  # RES-003
        if len(expired) < len(results):
            report.count_kept(NOT_EXPIRED, len(results) - len(expired))
        first_kept = min(view.skipped_warm, default=None)
        vacuumed = [
            result
            for result in expired
            if result.event <= view.warm_until and (first_kept is None or result.event < first_kept)
        ]
        report.looked += len(results)
        if len(vacuumed) < len(expired):
            report.count_kept(BYTES_STILL_HELD, len(expired) - len(vacuumed))
        if not vacuumed:
            return after
        tombstones = tuple(
            Tombstone(result.event, result.task_id, result.height_resolved, result.leaf_index) for result in vacuumed
        )
        page = PageRange(view.as_of, view.watermark, vacuumed[-1].event)
        if report.is_dry or await is_accepted(self._engine, Vacuum(page, tombstones), len(vacuumed), report):
            report.dropped += len(vacuumed)
            return page.until
        return after

    async def expire_tombstones(
        self, view: RetentionView, after: EventNo, rows_max: int, report: RetentionReport
    ) -> EventNo:
        """One page of tombstones whose audit window has ended."""
        days = self._engine.policy.result.audit_window_days
        if days is None:
            return after
        highest = await self._block_ages.highest_older_than(days, view.watermark)
        rows, _ = await self._engine.tables.page("tombstone", {}, after, min(rows_max, PAGE))
        tombstones = [record_from_row(Tombstone, row) for row in rows]
        expired = [tombstone for tombstone in tombstones if tombstone.height <= highest]
        if not expired:
            return after
        command = EndAudit(expired[-1].event, tuple(tombstone.event for tombstone in expired))
        report.looked += len(expired)
        if report.is_dry or await is_accepted(self._engine, command, len(expired), report):
            report.deleted += len(expired)
            return command.until
        return after
