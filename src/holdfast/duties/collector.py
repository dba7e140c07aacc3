"""The collector: lets go of results' bytes and records in three bounded passes, and of strays (RET-002, RET-003).

It is the owner's duty. Nothing is remembered outside of the journal: where it stands, what it left behind and what may
still have to be deleted is in the state, so one that was killed goes on where it was.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from itertools import accumulate
from typing import Final

import structlog

from holdfast.core.policy.knobs import HOUR_MS
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.core.retention.books import Pass
from holdfast.core.values import EventNo
from holdfast.duties.collecting import PAGE, Limits, Seen, result_of, seen
from holdfast.duties.demote import Demoter
from holdfast.duties.strays import Strays
from holdfast.duties.vacuum import Vacuumer
from holdfast.engine.collected import Report
from holdfast.engine.loop import Engine
from holdfast.ports import PLACES, Blobs, Clock, Cold

PASSES: Final = (Pass.HOT, Pass.WARM, Pass.INDEX)
"""What is looked at each time, in their order; the last one also ends audits."""
ROUND_MS: Final = HOUR_MS
"""How often all files are gone through for strays."""
MARKS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
"""Bounds of the histogram of durations."""
_log = structlog.get_logger()


class Collector:
    """Woken by the clock; after a run that was cut by its limits it rests as long as it worked, then goes on."""

    def __init__(self, engine: Engine, blobs: Blobs, clock: Clock, cold: Cold | None = None) -> None:
        self._engine, self._blobs, self._clock = engine, blobs, clock
        self._demoter, self._vacuumer = Demoter(engine, blobs, cold), Vacuumer(engine)
        self._strays, self._round_due_ms = Strays(engine, blobs, self._demoter.sweep_warm), 0
        self._turn = asyncio.Lock()
        self._swept_epoch = -1
        self.took: dict[str, list[int]] = {}
        """Runs by pass and by how long they took, in the buckets of `MARKS_MS`, and their sum in milliseconds."""
        self.bytes_hot = self.bytes_warm = 0

    async def run(self) -> None:
        """For ever; a store or disk that cannot be had is asked again. First what another has left half done."""
        work: Callable[[], Awaitable[object]] = self.finish
        while True:
            try:
                await work()
                work = self._look_round
            except (Unavailable, Corrupt) as fault:
                _log.warning("nothing is collected", because=str(fault))
            await self._clock.sleep(self._engine.policy.result.collect_interval_ms)

    async def finish(self) -> None:
        """Delete what an owner before this one decided upon and did not live to delete."""
        async with self._turn:
            await self._finish(Report("start"))
        await self._measure()

    async def look(self, passes: Iterable[Pass] = PASSES) -> list[Report]:
        """All that can be done now, run by run, with rests between them."""
        reports = []
        for pass_ in passes:
            report = await self.run_pass(pass_)
            while not report.is_done:
                reports.append(report)
                await self._clock.sleep(max(1, report.ms))
                report = await self.run_pass(pass_, after=report.until)
            reports.append(report)
        await self._measure()
        return reports

    async def _look_round(self) -> None:
        """The passes each time, strays now and then: to find them every file is asked about."""
        await self.look()
        if self._clock.monotonic_ms() >= self._round_due_ms:
            await self.look([Pass.STRAY])
            self._round_due_ms = self._clock.monotonic_ms() + ROUND_MS

    async def run_pass(self, pass_: Pass, *, is_dry: bool = False, after: int = 0) -> Report:
        """One bounded run; a dry one changes nothing and goes on after the event it is told, as strays always do."""
        async with self._turn:
            begun_ms = self._clock.monotonic_ms()
            knobs = self._engine.policy.result
            ends_ms = begun_ms + knobs.collect_ms_max
            limits = Limits(knobs.collect_rows_max, knobs.collect_bytes_max, ends_ms, self._clock.monotonic_ms)
            report = Report(pass_.value, is_dry)
            if not is_dry:
                await self._finish(report)
            if pass_ is Pass.STRAY:
                await self._places(max(0, after), limits, report)
            else:
                await self._pages(pass_, EventNo(after), limits, report)
            report.ms = self._clock.monotonic_ms() - begun_ms
            self._note(report)
            return report

    async def _finish(self, report: Report) -> None:
        """What an earlier owner, or an earlier run, decided and perhaps did not live to do."""
        epoch = self._engine.durable.epoch
        if self._swept_epoch != epoch or self._engine.state.leaving or self._engine.state.condemned:
            await self._engine.ask(lambda _: None)  # what the state says is durable: only then may bytes go
            await self._demoter.sweep_hot(report)
            await self._demoter.sweep_warm(report)
            self._swept_epoch = epoch

    async def _pages(self, pass_: Pass, after: EventNo, limits: Limits, report: Report) -> None:
        now = await seen(self._engine)
        at = max(after, _mark(now, pass_)) if report.is_dry else _mark(now, pass_)
        if not report.is_dry or not after:
            await self._again(pass_, now, report)
        while True:
            reached = await self._page(pass_, now, at, limits, report)
            report.until = reached
            if reached == at:
                break
            at = reached
            if limits.is_reached(report):
                report.is_done = False
                return
            await asyncio.sleep(0)
        if pass_ is Pass.INDEX:
            await self._end_audits(await seen(self._engine), limits, report)

    async def _places(self, at: int, limits: Limits, report: Report) -> None:
        """Files from a place on. Whoever asks knows where it stands: a round may begin anew at any time."""
        now = await seen(self._engine)
        while at < PLACES:
            at = report.until = await self._strays.step(now, at, limits, report)
            if limits.is_reached(report):
                report.is_done = at >= PLACES
                return
            await asyncio.sleep(0)

    async def _page(self, pass_: Pass, now: Seen, at: EventNo, limits: Limits, report: Report) -> EventNo:
        rows_max, bytes_max = limits.rows - report.looked, limits.bytes - report.freed_bytes
        if pass_ is Pass.HOT:
            return await self._demoter.hot(now, at, rows_max, bytes_max, report)
        if pass_ is Pass.WARM:
            return await self._demoter.warm(now, at, rows_max, bytes_max, report)
        return await self._vacuumer.records(now, at, rows_max, report)

    async def _again(self, pass_: Pass, now: Seen, report: Report) -> None:
        if pass_ is Pass.HOT and now.kept_hot:
            await self._demoter.hot_again(now, report)
        elif pass_ is Pass.WARM and now.kept_warm:
            await self._demoter.warm_again(now, report)

    async def _end_audits(self, now: Seen, limits: Limits, report: Report) -> None:
        at = now.audit_until
        while True:
            rows_max = max(1, limits.rows - report.looked)
            if (reached := await self._vacuumer.tombstones(now, at, rows_max, report)) == at:
                return
            at = reached
            if limits.is_reached(report):
                report.is_done = False
                return

    # ------------------------------------------------------------------------------------ how it goes

    def _note(self, report: Report) -> None:
        counts = self.took.setdefault(report.name, [0] * (len(MARKS_MS) + 2))
        counts[bisect_left(MARKS_MS, report.ms)] += 1
        counts[-1] += report.ms
        if not report.is_dry and (report.dropped or report.deleted):
            done = {"dropped": report.dropped, "freed_bytes": report.freed_bytes, "deleted": report.deleted}
            _log.info("collected", tier=report.name, **done, ms=report.ms)

    def durations(self) -> dict[str, tuple[list[tuple[str, int]], float]]:
        """Runs by pass as a histogram in seconds: cumulated buckets, and the sum."""
        marks = [*(str(mark / 1000) for mark in MARKS_MS), "+Inf"]
        return {
            name: (list(zip(marks, accumulate(counts[:-1]), strict=True)), counts[-1] / 1000)
            for name, counts in self.took.items()
        }

    async def _measure(self) -> None:
        """How much rests in the store and on the disk; counted anew, a page at a time."""
        now, most = await seen(self._engine), self._engine.policy.result.max_inline_bytes
        at: EventNo | None = now.hot_until if most else None  # without hot bytes there is nothing to count
        found = 0
        while at is not None:
            rows, _ = await self._engine.tables.page("result", {}, at, PAGE)
            results = [result_of(row) for row in rows]
            found += sum(each.result_size for each in results if each.result_size <= most)
            at = results[-1].event if len(results) == PAGE else None
            await asyncio.sleep(0)
        self.bytes_hot, self.bytes_warm = found, await self._blobs.usage()


def _mark(now: Seen, pass_: Pass) -> EventNo:
    return {Pass.HOT: now.hot_until, Pass.WARM: now.warm_until, Pass.INDEX: now.index_until}[pass_]
