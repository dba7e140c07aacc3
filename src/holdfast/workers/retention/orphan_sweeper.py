"""Deletes orphans (RET-002): files that no result refers to, such as outputs that were uploaded and never accepted.

They are deleted as all warm bytes are: an event allows it, then the file is deleted, then an event confirms it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.core.base.values import Height
from holdfast.core.policy import HOUR_MS
from holdfast.core.retention.decide import SUBMITTED_MEANWHILE
from holdfast.core.retention.messages import DropWarm, OrphanFile, PageRange
from holdfast.engine.loop import Engine
from holdfast.engine.queries.retention import FilterUnreferenced, RetentionView
from holdfast.engine.retention_report import RetentionReport
from holdfast.ports import AgedBlob, Blobs, scan_position
from holdfast.workers.retention.candidates import PAGE, RunLimits, count_within, is_accepted, result_of

REFERENCED_BY_RESULT = "a result has these bytes"


class OrphanSweeper:
    """Scans the files in the order of their digests, page by page; `delete_pending` deletes what an event allows."""

    def __init__(
        self, engine: Engine, blobs: Blobs, delete_pending: Callable[[RetentionReport], Awaitable[None]]
    ) -> None:
        self._engine, self._blobs, self._delete_pending = engine, blobs, delete_pending

    async def step(self, view: RetentionView, position: int, limits: RunLimits, report: RetentionReport) -> int:
        """One page of files from a position on; the position of the next page."""
        before_ms = self._engine.now_ms() - self._engine.policy.result.orphan_grace_hours * HOUR_MS
        aged, reached = await self._blobs.list_aged(before_ms, position, min(PAGE, limits.rows - report.looked))
        orphans = await self._unreferenced(view, aged)
        fitting = count_within((size for _, size in orphans), limits.bytes - report.freed_bytes)
        if fitting < len(orphans):
            reached = scan_position(orphans[fitting][0])
            orphans = orphans[:fitting]
        looked = sum(scan_position(digest) < reached for digest, _ in aged)
        report.looked += looked
        if looked > len(orphans):
            report.count_kept(REFERENCED_BY_RESULT, looked - len(orphans))
        if orphans:
            await self._delete(view, orphans, report)
        return reached

    async def _unreferenced(self, view: RetentionView, aged: list[AgedBlob]) -> list[OrphanFile]:
        """Files that no record needs on the disk: its bytes were released, or there never was a record."""
        digests = [digest for digest, _ in aged]
        rows = map(result_of, await self._engine.tables.find("result", "result_digest", digests) if digests else ())
        needed = {row.result_digest for row in rows if row.event > view.warm_until or row.event in view.skipped_warm}
        return [(digest, size) for digest, size in aged if digest not in needed]

    async def _delete(self, view: RetentionView, orphans: list[OrphanFile], report: RetentionReport) -> None:
        unreferenced = await self._engine.query_durable(FilterUnreferenced(view.as_of, tuple(orphans)))
        if len(unreferenced) < len(orphans):
            report.count_kept(SUBMITTED_MEANWHILE, len(orphans) - len(unreferenced))
        page = PageRange(view.as_of, Height(0), view.warm_until)
        command = DropWarm(page, orphans=unreferenced)
        if report.is_dry or await is_accepted(self._engine, command, len(unreferenced), report):
            report.dropped += len(unreferenced)
            report.freed_bytes += sum(size for _, size in unreferenced)
            await self._delete_pending(report)
