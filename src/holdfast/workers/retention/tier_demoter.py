"""Deletes bytes from the store and then from the disk (RET-002), once the next tier was seen to hold them.

Decide, commit, then do: an event allows the deletion, then the bytes are deleted, then an event confirms it. A crash in
between leaves too many bytes, and the next start deletes what the first event allowed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec
import structlog

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.core.result.model import Result
from holdfast.core.retention.messages import ConfirmDeleted, DropHot, DropWarm, PageRange, Skipped, WarmCandidate
from holdfast.core.retention.model import SKIPPED_MAX, Pass, is_dropped
from holdfast.engine.loop import Engine
from holdfast.engine.payloads import HotRow, hot_rows
from holdfast.engine.queries.retention import RetentionView
from holdfast.engine.retention_report import RetentionReport
from holdfast.ports import Blobs
from holdfast.ports.blobs import Archive
from holdfast.workers.retention.candidates import BlockAges, count_within, is_accepted, load_candidates, result_of

DELETE_ROWS_MAX: Final = 256
"""Rows deleted in one transaction: the owner's appends wait for it."""
RETRY_MAX: Final = 256
"""Results that were skipped before and are tried again in one run."""
NOT_ON_DISK, NOT_ARCHIVED = "the disk does not hold these bytes", "the archive does not hold these bytes yet"
REQUESTED_LATELY: Final = "these bytes were requested a moment ago"
NO_ARCHIVE, ONLY_HOT = "no archive is configured", "only the store holds these bytes"
_log = structlog.get_logger()


class TierDemoter:
    """Pass 1 (hot to warm) and pass 2 (warm to cold), page by page."""

    def __init__(self, engine: Engine, blobs: Blobs, archive: Archive | None) -> None:
        self._engine, self._blobs, self._archive = engine, blobs, archive
        self._block_ages = BlockAges(engine)
        self._last_retried: dict[Pass, EventNo] = {}
        """The last skipped result that a run has tried again."""

    # ------------------------------------------------------------------------------------ pass 1

    async def demote_hot(
        self, view: RetentionView, after: EventNo, rows_max: int, bytes_max: int, report: RetentionReport
    ) -> EventNo:
        """One page of pass 1; the event up to which results were checked."""
        results = await load_candidates(self._engine, after, view.watermark, rows_max)
        if not results:
            return after
        until = results[-1].event
        rows = [row async for row in hot_rows(self._engine.journal, after, until)]
        fitting = count_within((row.size for row in rows), bytes_max)
        if fitting < len(rows):
            until = EventNo(rows[fitting].event - 1)
            rows = rows[:fitting]
        results = [result for result in results if result.event <= until]
        skipped = await self._not_on_disk(rows, report)
        dropped = [row for row in rows if row.event not in skipped]
        report.looked += len(results)
        for reason in skipped.values():
            report.count_kept(reason)
        command = DropHot(
            PageRange(view.as_of, view.watermark, until, tuple(skipped.items())),
            results=len(results) - len(skipped),
            bytes=sum(row.size for row in dropped),
            is_deleted=not dropped,
        )
        if report.is_dry or await is_accepted(self._engine, command, command.results, report):
            report.dropped += command.results
            report.freed_bytes += command.bytes
            await self._delete_rows(dropped, report)
            return until
        return after

    async def retry_hot(self, view: RetentionView, report: RetentionReport) -> None:
        """Results that pass 1 skipped: their bytes may be on the disk by now."""
        events = self._next_to_retry(Pass.HOT, view.skipped_hot)
        rows = [row for event in events async for row in hot_rows(self._engine.journal, EventNo(event - 1), event)]
        skipped = await self._not_on_disk(rows, report)
        for reason in skipped.values():
            report.count_kept(reason)
        retried = tuple(event for event in events if event not in skipped)
        if not retried or report.is_dry:
            return
        dropped = [row for row in rows if row.event in retried]
        command = DropHot(
            PageRange(view.as_of, view.watermark, view.hot_until),
            results=len(retried),
            bytes=sum(row.size for row in dropped),
            retried=retried,
            is_deleted=not dropped,
        )
        if await is_accepted(self._engine, command, command.results, report):
            report.dropped += command.results
            report.freed_bytes += command.bytes
            await self._delete_rows(dropped, report)

    async def _not_on_disk(self, rows: list[HotRow], report: RetentionReport) -> dict[EventNo, str]:
        """RET-002: the bytes on the disk are read and hashed; missing ones are restored from the store."""
        if not rows:
            return {}
        verified = set(await self._blobs.verify(list({row.digest for row in rows})))
        missing = [row for row in rows if row.digest not in verified]
        if missing and self._archive is not None:
            verified |= set(await self._archive.holds([(row.digest, row.size) for row in missing]))
        skipped: dict[EventNo, str] = {}
        for row in missing:
            if row.digest not in verified and (report.is_dry or not await self._restore_to_disk(row)):
                skipped[row.event] = NOT_ON_DISK
        return skipped

    async def _restore_to_disk(self, row: HotRow) -> bool:
        """Write bytes that the disk has lost; whether it holds them now."""
        raw = await self._engine.journal.attachment(row.batch, row.payload)
        if raw is None:
            return False
        try:
            incoming = await self._blobs.receive((row.digest, row.size))
            try:
                await incoming.write(raw)
                await incoming.keep()
            finally:
                await incoming.drop()
            return row.digest in await self._blobs.verify([row.digest])
        except (Unavailable, Corrupt) as fault:
            _log.warning("restore_to_disk_failed", digest=row.digest.hex(), reason=str(fault))
            return False

    async def delete_pending_hot(self, report: RetentionReport) -> None:
        """Delete rows whose deletion an event allowed and no event confirmed, such as after a crash."""
        pending = list(self._engine.undurable_state.hot_deletes_pending.items())
        rows = [row for after, until in pending async for row in hot_rows(self._engine.journal, after, until)]
        dropped = [row for row in rows if is_dropped(self._engine.undurable_state, Pass.HOT, row.event)]
        if self._engine.undurable_state.hot_deletes_pending:
            await self._delete_rows(dropped, report)

    async def _delete_rows(self, rows: list[HotRow], report: RetentionReport) -> None:
        """Delete rows whose DropHot is durable: the caller awaited its outcome, or a durable query after it.

        Results that share a row are dropped only by this worker, so what the state says of them is durable, too.
        """
        if report.is_dry:
            return
        state = self._engine.undurable_state
        unused = {
            (row.batch, row.payload)
            for row in rows
            if row.is_output_only and all(is_dropped(state, Pass.HOT, other) for other in row.shared_with)
        }
        await self._delete_payloads(sorted(unused))
        report.deleted += len(unused)
        await self._engine.submit(ConfirmDeleted(Pass.HOT))

    async def _delete_payloads(self, payloads: list[tuple[BatchNo, Digest]]) -> None:
        for start in range(0, len(payloads), DELETE_ROWS_MAX):
            await self._engine.journal.delete_payloads(payloads[start : start + DELETE_ROWS_MAX])

    # ------------------------------------------------------------------------------------ pass 2

    async def demote_warm(
        self, view: RetentionView, after: EventNo, rows_max: int, bytes_max: int, report: RetentionReport
    ) -> EventNo:
        """One page of pass 2; the event up to which results were checked."""
        policy = self._engine.policy.result
        highest = await self._block_ages.highest_older_than(policy.retain_warm_days, view.watermark)
        results = await load_candidates(self._engine, after, highest, rows_max)
        hot_until = view.hot_until if not report.is_dry else max(view.hot_until, view.as_of)
        results = [result for result in results if result.event <= hot_until]
        results = results[: count_within((result.result_size for result in results), bytes_max)]
        if not results:
            return after
        report.looked += len(results)
        if self._archive is None and not policy.may_lose_unarchived:
            report.count_kept(NO_ARCHIVE, len(results))
            return after if not report.is_dry else results[-1].event
        until = results[-1].event
        candidates, skipped = await self._split_archived(view, results)
        candidates = await self._mark_shared(view, candidates, until, {event for event, _ in skipped})
        for _, reason in skipped:
            report.count_kept(reason)
        if len(view.skipped_warm) + len(skipped) > SKIPPED_MAX:
            report.count_kept(f"{SKIPPED_MAX} results are skipped already", len(candidates))
            return after
        page = PageRange(view.as_of, view.watermark, until, tuple(skipped))
        return until if await self._drop_warm(DropWarm(page, tuple(candidates)), report) else after

    async def retry_warm(self, view: RetentionView, report: RetentionReport) -> None:
        """Results that pass 2 skipped: the archive may have them by now."""
        rows = [
            await self._engine.tables.get("result", event)
            for event in self._next_to_retry(Pass.WARM, view.skipped_warm)
        ]
        results = [result_of(row) for row, _ in rows if row is not None]
        in_use = await self._blobs.requested_lately([result.result_digest for result in results])
        waiting = [result for result in results if result.result_digest in in_use]
        if waiting:  # to drop them would spare them again: two events a round, as long as somebody asks for them
            report.count_kept(REQUESTED_LATELY, len(waiting))
            results = [result for result in results if result.result_digest not in in_use]
        candidates, skipped = await self._split_archived(view, results)
        for _, reason in skipped:
            report.count_kept(reason)
        if candidates:
            candidates = await self._mark_shared(view, candidates, view.warm_until, {event for event, _ in skipped})
            page = PageRange(view.as_of, view.watermark, view.warm_until)
            await self._drop_warm(DropWarm(page, retried=tuple(candidates)), report)

    async def _drop_warm(self, command: DropWarm, report: RetentionReport) -> bool:
        dropped = (*command.candidates, *command.retried)
        if report.is_dry or await is_accepted(self._engine, command, len(dropped), report):
            report.dropped += len(dropped)
            report.freed_bytes += sum(candidate.size for candidate in dropped)
            report.lost += sum(not candidate.is_archived for candidate in dropped)
            await self.delete_pending_warm(report)
            return True
        return False

    async def _split_archived(
        self, view: RetentionView, results: list[Result]
    ) -> tuple[list[WarmCandidate], list[Skipped]]:
        """RET-002: results whose bytes the archive holds or policy allows to lose, and results that are skipped."""
        may_lose = self._engine.policy.result.may_lose_unarchived
        wanted = [(result.result_digest, result.result_size) for result in results]
        archived = await self._archive.holds(wanted) if self._archive is not None and wanted else {}
        candidates, skipped = list[WarmCandidate](), list[Skipped]()
        for result in results:
            is_archived = result.result_digest in archived
            if result.event in view.skipped_hot:
                skipped.append((result.event, ONLY_HOT))
            elif is_archived or may_lose:
                candidates.append(WarmCandidate(result.event, result.result_digest, result.result_size, is_archived))
            else:
                skipped.append((result.event, NOT_ARCHIVED))
        return candidates, skipped

    async def _mark_shared(
        self, view: RetentionView, candidates: list[WarmCandidate], until: EventNo, skipped: set[EventNo]
    ) -> list[WarmCandidate]:
        """Mark candidates whose bytes another result still needs: these bytes stay on the disk."""
        digests = list({candidate.digest for candidate in candidates})
        dropped = {candidate.event for candidate in candidates}
        rows = map(result_of, await self._engine.tables.find("result", "result_digest", digests))
        staying = (view.skipped_warm | skipped) - dropped
        needed = {row.result_digest for row in rows if row.event > until or row.event in staying}
        return [
            msgspec.structs.replace(candidate, is_shared=True) if candidate.digest in needed else candidate
            for candidate in candidates
        ]

    async def delete_pending_warm(self, report: RetentionReport) -> None:
        """Delete files whose deletion an event allowed and no event confirmed; files in recent use stay."""
        pending = list(self._engine.undurable_state.warm_deletes_pending)
        if not pending or report.is_dry:
            return
        in_use = await self._blobs.sweep(pending)
        report.deleted += len(pending) - len(in_use)
        await self._engine.submit(ConfirmDeleted(Pass.WARM, tuple(in_use)))

    def _next_to_retry(self, pass_: Pass, skipped: frozenset[EventNo]) -> list[EventNo]:
        """Some of the skipped results, other ones at each run: those that stay skipped do not block the rest."""
        order, after = sorted(skipped), self._last_retried.get(pass_, EventNo(0))
        start = bisect_right(order, after)
        events = (order[start:] + order[:start])[:RETRY_MAX]
        self._last_retried[pass_] = events[-1]
        return sorted(events)
