"""Records leave their table (RET-002, pass 3): a tombstone stays until the audit window ends, the leaf for ever."""

from __future__ import annotations

import msgspec

from holdfast.core.refusal import Refused
from holdfast.core.retention.acts import EndAudit, Lot, Vacuum
from holdfast.core.retention.books import Tombstone
from holdfast.core.values import EventNo
from holdfast.duties.collecting import PAGE, Ages, Seen, candidates
from holdfast.engine.collected import Report
from holdfast.engine.loop import Engine

BYTES_HERE = "their bytes are still here"


class Vacuumer:
    """Pass 3, a page at a time: first records, then tombstones."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ages = Ages(engine)

    async def records(self, seen: Seen, after: EventNo, rows_max: int, report: Report) -> EventNo:
        """One page of records that are older than the cold tier is promised for."""
        days = self._engine.policy.result.retain_cold_days
        highest = await self._ages.height(days, seen.watermark)
        results = await candidates(self._engine, after, highest, rows_max)
        first_kept = min(seen.kept_warm, default=None)
        going = [
            each
            for each in results
            if each.event <= seen.warm_until and (first_kept is None or each.event < first_kept)
        ]
        report.looked += len(results)
        if len(going) < len(results):
            report.keep(BYTES_HERE, len(results) - len(going))
        if not going:
            return after
        stones = tuple(Tombstone(each.event, each.task_id, each.height_resolved, each.leaf_index) for each in going)
        lot = Lot(seen.as_of, seen.watermark, going[-1].event)
        if report.is_dry or await self._did(Vacuum(lot, stones), len(going), report):
            report.dropped += len(going)
            return lot.until
        return after

    async def tombstones(self, seen: Seen, after: EventNo, rows_max: int, report: Report) -> EventNo:
        """One page of tombstones whose audit window has ended."""
        days = self._engine.policy.result.audit_window_days
        if days is None:
            return after
        highest = await self._ages.height(days, seen.watermark)
        rows, _ = await self._engine.tables.page("tombstone", {}, after, min(rows_max, PAGE))
        stones = [msgspec.convert(row, Tombstone, builtin_types=(bytes,)) for row in rows]
        going = [each for each in stones if each.height <= highest]
        if not going:
            return after
        command = EndAudit(going[-1].event, tuple(each.event for each in going))
        report.looked += len(going)
        if report.is_dry or await self._did(command, len(going), report):
            report.deleted += len(going)
            return command.until
        return after

    async def _did(self, command: Vacuum | EndAudit, count: int, report: Report) -> bool:
        outcome = await self._engine.submit(command)
        if isinstance(outcome, Refused):
            report.keep(outcome.says, count)
        return not isinstance(outcome, Refused)
