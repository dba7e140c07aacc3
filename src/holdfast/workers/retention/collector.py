"""Deletes the bytes and records of results in three bounded passes, and orphan files (RET-002, RET-003).

It runs on the owner. Its position, the results it skipped and the deletions that are pending are in the state, so a
collector that was killed continues where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from holdfast.core.base.values import EventNo
from holdfast.core.policy import HOUR_MS
from holdfast.core.retention.model import Pass, PassProgress
from holdfast.engine.loop import Engine
from holdfast.engine.queries.node import Ping
from holdfast.engine.queries.retention import RetentionView
from holdfast.engine.retention_report import RetentionReport
from holdfast.ports import SCAN_END, Blobs, Clock, Row
from holdfast.ports.blobs import Archive
from holdfast.system.histogram import Histogram
from holdfast.workers.retention.candidates import PAGE, RunLimits, load_view, result_of
from holdfast.workers.retention.orphan_sweeper import OrphanSweeper
from holdfast.workers.retention.record_vacuum import RecordVacuum
from holdfast.workers.retention.tier_demoter import TierDemoter

PASSES: Final = (Pass.HOT, Pass.WARM, Pass.RECORDS)
"""The passes of each round, in their order; the last one also ends audits."""
ORPHAN_SCAN_MS: Final = HOUR_MS
"""How often all files are searched for orphans."""
RUN_BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
"""Bounds of the histogram of a run's duration."""
_log = structlog.get_logger()


class Collector:
    """Runs at an interval; after a run that reached its limits it pauses as long as it worked, then continues."""

    starts_at_once = True

    def __init__(self, engine: Engine, blobs: Blobs, clock: Clock, archive: Archive | None = None) -> None:
        self._engine, self._blobs, self._clock = engine, blobs, clock
        self._demoter, self._vacuum = TierDemoter(engine, blobs, archive), RecordVacuum(engine)
        self._orphan_sweeper = OrphanSweeper(engine, blobs, self._demoter.delete_pending_warm)
        self._orphan_scan_due_ms = 0
        self._lock = asyncio.Lock()
        self._has_resumed = False
        self._resumed_term = -1
        self.durations: dict[str, Histogram] = {}
        """How long runs took, by pass, in milliseconds."""
        self.bytes_hot = self.bytes_warm = 0
        self._measuring = asyncio.Lock()
        self._hot_counted: EventNo | None = None
        """The last result that `_hot_bytes` counts."""
        self._hot_bytes = 0
        """Of all hot outputs that ever were, those that pass 1 has dropped included."""

    @property
    def interval_ms(self) -> int:
        return self._engine.policy.result.gc_interval_ms

    async def run_once(self) -> None:
        """The first time, finish the deletions of an earlier owner; then all passes, and orphans once an hour."""
        if not self._has_resumed:
            await self.resume_deletes()
            self._has_resumed = True
            return
        await self.run_passes()
        if self._clock.monotonic_ms() >= self._orphan_scan_due_ms:  # rarely, since it looks up every file
            await self.run_passes([Pass.ORPHANS])
            self._orphan_scan_due_ms = self._clock.monotonic_ms() + ORPHAN_SCAN_MS

    async def resume_deletes(self) -> None:
        """Delete what an earlier owner decided to delete and did not."""
        async with self._lock:
            await self._resume_deletes(RetentionReport("start"))
        await self.measure()

    async def run_passes(self, passes: Iterable[Pass] = PASSES) -> list[RetentionReport]:
        """Everything that can be done now, in bounded runs with pauses between them."""
        reports = []
        for pass_ in passes:
            report = await self.run_pass(pass_)
            while not report.is_done:
                reports.append(report)
                await self._clock.sleep(max(1, report.ms))
                report = await self.run_pass(pass_, after=report.until)
            reports.append(report)
        await self.measure()
        return reports

    async def run_pass(self, pass_: Pass, *, is_dry: bool = False, after: int = 0) -> RetentionReport:
        """One bounded run. A dry run changes nothing and continues at `after`, as the pass over orphans always does."""
        async with self._lock:
            started_ms = self._clock.monotonic_ms()
            policy = self._engine.policy.result
            limits = RunLimits(
                rows=policy.gc_rows_max,
                bytes=policy.gc_bytes_max,
                deadline_ms=started_ms + policy.gc_ms_max,
                now_ms=self._clock.monotonic_ms,
            )
            report = RetentionReport(pass_.value, is_dry)
            if not is_dry:
                await self._resume_deletes(report)
            if pass_ is Pass.ORPHANS:
                await self._run_orphan_scan(max(0, after), limits, report)
            else:
                await self._run_pages(pass_, EventNo(after), limits, report)
            report.ms = self._clock.monotonic_ms() - started_ms
            self._record_duration(report)
        if report.dropped and not is_dry:
            await self.measure()  # also where an operator has asked for a single run
        return report

    async def _resume_deletes(self, report: RetentionReport) -> None:
        """Finish deletions that an earlier owner, or an earlier run, decided."""
        term, state = self._engine.durable_head.term, self._engine.undurable_state
        if self._resumed_term != term or state.hot_deletes_pending or state.warm_deletes_pending:
            await self._engine.query_durable(Ping())  # bytes are deleted only once their event is durable
            await self._demoter.delete_pending_hot(report)
            await self._demoter.delete_pending_warm(report)
            self._resumed_term = term

    async def _run_pages(self, pass_: Pass, after: EventNo, limits: RunLimits, report: RetentionReport) -> None:
        view = await load_view(self._engine)
        position = max(after, _position(view, pass_)) if report.is_dry else _position(view, pass_)
        if not report.is_dry or not after:
            await self._retry_skipped(pass_, view, report)
        while True:
            reached = await self._run_page(pass_, view, position, limits, report)
            report.until = reached
            if reached == position:
                break
            position = reached
            if limits.is_reached(report):
                report.is_done = False
                return
            await asyncio.sleep(0)
        if pass_ is Pass.RECORDS:
            await self._end_audits(await load_view(self._engine), limits, report)

    async def _run_orphan_scan(self, position: int, limits: RunLimits, report: RetentionReport) -> None:
        """Files from a position on. The caller keeps the position: a scan may start again at any time."""
        view = await load_view(self._engine)
        while position < SCAN_END:
            position = report.until = await self._orphan_sweeper.step(view, position, limits, report)
            if limits.is_reached(report):
                report.is_done = position >= SCAN_END
                return
            await asyncio.sleep(0)

    async def _run_page(
        self, pass_: Pass, view: RetentionView, after: EventNo, limits: RunLimits, report: RetentionReport
    ) -> EventNo:
        rows_max, bytes_max = limits.rows - report.looked, limits.bytes - report.freed_bytes
        if pass_ is Pass.HOT:
            return await self._demoter.demote_hot(view, after, rows_max, bytes_max, report)
        if pass_ is Pass.WARM:
            return await self._demoter.demote_warm(view, after, rows_max, bytes_max, report)
        return await self._vacuum.vacuum_records(view, after, rows_max, report)

    async def _retry_skipped(self, pass_: Pass, view: RetentionView, report: RetentionReport) -> None:
        if pass_ is Pass.HOT and view.skipped_hot:
            await self._demoter.retry_hot(view, report)
        elif pass_ is Pass.WARM and view.skipped_warm:
            await self._demoter.retry_warm(view, report)

    async def _end_audits(self, view: RetentionView, limits: RunLimits, report: RetentionReport) -> None:
        position = view.audit_until
        while True:
            rows_max = max(1, limits.rows - report.looked)
            if (reached := await self._vacuum.expire_tombstones(view, position, rows_max, report)) == position:
                return
            position = reached
            if limits.is_reached(report):
                report.is_done = False
                return

    # ------------------------------------------------------------------------------------ measurements

    def _record_duration(self, report: RetentionReport) -> None:
        self.durations.setdefault(report.name, Histogram(RUN_BUCKETS_MS)).add(report.ms)
        if not report.is_dry and (report.dropped or report.deleted):
            _log.info(
                "retention_run",
                tier=report.name,
                dropped=report.dropped,
                freed_bytes=report.freed_bytes,
                deleted=report.deleted,
                ms=report.ms,
            )

    async def measure(self) -> None:
        """How many bytes are in the store and on the disk: only results that are new since the last time are read."""
        async with self._measuring:
            await self._engine.query_durable(Ping())
            await self._engine.wait_tables()
            if self._engine.policy.result.max_inline_bytes:  # without hot bytes there is nothing to count
                await self._count_hot()
            self.bytes_warm = await self._blobs.usage()

    async def _count_hot(self) -> None:
        if self._hot_counted is None:  # once: what pass 1 has skipped, and what it has not come to yet
            hot, skipped = self._hot_progress(), list(self._engine.undurable_state.skipped_hot)
            until, dropped = hot.until, hot.bytes
            rows = [(await self._engine.tables.get("result", event))[0] for event in skipped]
            self._hot_bytes = dropped + self._hot_size(row for row in rows if row is not None)
            self._hot_counted = until
        while True:
            page, _ = await self._engine.tables.page("result", {}, self._hot_counted, PAGE)
            self._hot_bytes += self._hot_size(page)
            self._hot_counted = result_of(page[-1]).event if page else self._hot_counted
            if len(page) < PAGE:
                break
        self.bytes_hot = self._hot_bytes - self._hot_progress().bytes

    def _hot_size(self, rows: Iterable[Row]) -> int:
        sizes = [result_of(row).result_size for row in rows]
        return sum(size for size in sizes if size <= self._engine.policy.result.max_inline_bytes)

    def _hot_progress(self) -> PassProgress:
        return self._engine.undurable_state.retention_progress.get(Pass.HOT) or PassProgress()


def _position(view: RetentionView, pass_: Pass) -> EventNo:
    return {Pass.HOT: view.hot_until, Pass.WARM: view.warm_until, Pass.RECORDS: view.records_until}[pass_]
