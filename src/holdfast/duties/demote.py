"""Bytes leave the store and then the disk (RET-002): only when the next hand was seen to hold them.

Decide, commit, then do: an event says what may go, then it goes, then an event says that it is gone. Whatever dies in
between leaves too much, and what the first event named is deleted at the next start.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import structlog

from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.core.result.record import Result
from holdfast.core.retention.acts import DropHot, DropWarm, Held, Left, Lot, Sweep
from holdfast.core.retention.books import KEPT_MAX, Pass, is_dropped
from holdfast.core.values import BatchNo, Digest, EventNo
from holdfast.duties.collecting import Ages, Seen, candidates, cut_at_bytes, result_of
from holdfast.engine.collected import Report
from holdfast.engine.loop import Engine
from holdfast.engine.payloads import HotRow, hot_rows
from holdfast.ports import Blobs, Cold

TOGETHER: Final = 256
"""Rows deleted in one transaction: the owner's appends wait meanwhile."""
AGAIN: Final = 256
"""Results that were left behind before and are looked at once more in a run."""
NOT_HELD, NOT_ARCHIVED = "the disk does not hold these bytes", "the archive does not hold these bytes yet"
NO_ARCHIVE, ONLY_HOT = "no archive is configured", "only the store holds these bytes"
_log = structlog.get_logger()


class Demoter:
    """Pass 1 and pass 2, a page at a time."""

    def __init__(self, engine: Engine, blobs: Blobs, cold: Cold | None) -> None:
        self._engine, self._blobs, self._cold = engine, blobs, cold
        self._ages = Ages(engine)
        self._looked_again: dict[Pass, EventNo] = {}
        """The last of those left behind that a run has looked at."""

    # ------------------------------------------------------------------------------------ pass 1

    async def hot(self, seen: Seen, after: EventNo, rows_max: int, bytes_max: int, report: Report) -> EventNo:
        """One page of pass 1; up to which event results were looked at."""
        results = await candidates(self._engine, after, seen.watermark, rows_max)
        if not results:
            return after
        until = results[-1].event
        rows = [row async for row in hot_rows(self._engine.journal, after, until)]
        rows, until = _cut(rows, until, bytes_max)
        results = [result for result in results if result.event <= until]
        left = await self._not_held(rows, report)
        going = [row for row in rows if row.event not in left]
        report.looked += len(results)
        for why in left.values():
            report.keep(why)
        lot = Lot(seen.as_of, seen.watermark, until, tuple(left.items()))
        told = (len(results) - len(left), sum(row.size for row in going))
        if report.is_dry or await self._did(DropHot(lot, *told, is_swept=not going), report):
            report.dropped, report.freed_bytes = report.dropped + told[0], report.freed_bytes + told[1]
            await self._delete_rows(going, report)
            return until
        return after

    async def hot_again(self, seen: Seen, report: Report) -> None:
        """Results that pass 1 left behind: perhaps somebody has put their bytes back."""
        kept = self._whose_turn(Pass.HOT, seen.kept_hot)
        rows = [row for event in kept async for row in hot_rows(self._engine.journal, EventNo(event - 1), event)]
        left = await self._not_held(rows, report)
        for why in left.values():
            report.keep(why)
        there = {row.event for row in rows}
        again = tuple(event for event in kept if event not in left)
        if not again or report.is_dry:
            return
        lot = Lot(seen.as_of, seen.watermark, seen.hot_until)
        size = sum(row.size for row in rows if row.event in again)
        if await self._did(DropHot(lot, len(again), size, again, is_swept=not there & set(again)), report):
            report.dropped, report.freed_bytes = report.dropped + len(again), report.freed_bytes + size
            await self._delete_rows([row for row in rows if row.event in again], report)

    async def _not_held(self, rows: list[HotRow], report: Report) -> dict[EventNo, str]:
        """RET-002: the disk's bytes are read and hashed; where it has none, it gets them from the store."""
        if not rows:
            return {}
        sound = set(await self._blobs.sound(list({row.digest for row in rows})))
        missing = [row for row in rows if row.digest not in sound]
        if missing and self._cold is not None:
            sound |= set(await self._cold.holds([(row.digest, row.size) for row in missing]))
        left: dict[EventNo, str] = {}
        for row in missing:
            if row.digest not in sound and (report.is_dry or not await self._put_back(row)):
                left[row.event] = NOT_HELD
        return left

    async def _put_back(self, row: HotRow) -> bool:
        """The disk gets the bytes that it has lost; it tells whether it holds them now."""
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
            return row.digest in await self._blobs.sound([row.digest])
        except (Unavailable, Corrupt) as fault:
            _log.warning("bytes could not be put back", digest=row.digest.hex(), because=str(fault))
            return False

    async def sweep_hot(self, report: Report) -> None:
        """What an event said is gone, and perhaps is not: after a crash."""
        state = self._engine.state
        rows = [row for a, b in list(state.leaving.items()) async for row in hot_rows(self._engine.journal, a, b)]
        going = [row for row in rows if is_dropped(self._engine.state, Pass.HOT, row.event)]
        if state.leaving:
            await self._delete_rows(going, report)

    async def _delete_rows(self, rows: list[HotRow], report: Report) -> None:
        if report.is_dry:
            return
        state = self._engine.state
        free = {
            (row.batch, row.payload)
            for row in rows
            if row.is_free and all(is_dropped(state, Pass.HOT, other) for other in row.with_)
        }
        await self._let_go(sorted(free))
        report.deleted += len(free)
        await self._engine.submit(Sweep(Pass.HOT))

    async def _let_go(self, payloads: list[tuple[BatchNo, Digest]]) -> None:
        for at in range(0, len(payloads), TOGETHER):
            await self._engine.journal.let_go(payloads[at : at + TOGETHER])

    # ------------------------------------------------------------------------------------ pass 2

    async def warm(self, seen: Seen, after: EventNo, rows_max: int, bytes_max: int, report: Report) -> EventNo:
        """One page of pass 2; up to which event results were looked at."""
        policy = self._engine.policy.result
        highest = await self._ages.height(policy.retain_warm_days, seen.watermark)
        results = await candidates(self._engine, after, highest, rows_max)
        behind = seen.hot_until if not report.is_dry else max(seen.hot_until, seen.as_of)
        results = cut_at_bytes([each for each in results if each.event <= behind], bytes_max)
        if not results:
            return after
        report.looked += len(results)
        if self._cold is None and not policy.may_lose_unarchived:
            report.keep(NO_ARCHIVE, len(results))
            return after if not report.is_dry else results[-1].event
        until = results[-1].event
        held, left = await self._held(seen, results)
        held = await self._shared(seen, held, until, {event for event, _ in left})
        for _, why in left:
            report.keep(why)
        if len(seen.kept_warm) + len(left) > KEPT_MAX:
            report.keep(f"{KEPT_MAX} were left behind already", len(held))
            return after
        if await self._drop_warm(DropWarm(Lot(seen.as_of, seen.watermark, until, tuple(left)), tuple(held)), report):
            return until
        return after

    async def warm_again(self, seen: Seen, report: Report) -> None:
        """Results that pass 2 left behind: perhaps the archive has them by now."""
        rows = [await self._engine.tables.get("result", event) for event in self._whose_turn(Pass.WARM, seen.kept_warm)]
        results = [result_of(row) for row in rows if row is not None]
        held, left = await self._held(seen, results)
        for _, why in left:
            report.keep(why)
        if held:
            held = await self._shared(seen, held, seen.warm_until, {event for event, _ in left})
            lot = Lot(seen.as_of, seen.watermark, seen.warm_until)
            await self._drop_warm(DropWarm(lot, (), tuple(held)), report)

    async def _drop_warm(self, command: DropWarm, report: Report) -> bool:
        gone = (*command.held, *command.again)
        if report.is_dry or await self._did(command, report):
            report.dropped += len(gone)
            report.freed_bytes += sum(each.size for each in gone)
            report.lost += sum(not each.is_archived for each in gone)
            await self.sweep_warm(report)
            return True
        return False

    async def _held(self, seen: Seen, results: list[Result]) -> tuple[list[Held], list[Left]]:
        """RET-002: whose bytes the archive holds, or policy allows to lose; and who must stay."""
        may_lose = self._engine.policy.result.may_lose_unarchived
        wanted = [(each.result_digest, each.result_size) for each in results]
        cold = await self._cold.holds(wanted) if self._cold is not None and wanted else {}
        held, left = list[Held](), list[Left]()
        for each in results:
            is_archived = each.result_digest in cold
            if each.event in seen.kept_hot:
                left.append((each.event, ONLY_HOT))
            elif is_archived or may_lose:
                held.append(Held(each.event, each.result_digest, each.result_size, is_archived))
            else:
                left.append((each.event, NOT_ARCHIVED))
        return held, left

    async def _shared(self, seen: Seen, held: list[Held], until: EventNo, left: set[EventNo]) -> list[Held]:
        """Bytes that a result needs which is not let go with these stay, whoever else had them."""
        digests = list({each.digest for each in held})
        going = {each.event for each in held}
        rows = map(result_of, await self._engine.tables.find("result", "result_digest", digests))
        staying = (seen.kept_warm | left) - going
        needed = {row.result_digest for row in rows if row.event > until or row.event in staying}
        return [
            Held(each.event, each.digest, each.size, each.is_archived, is_shared=True)
            if each.digest in needed
            else each
            for each in held
        ]

    async def sweep_warm(self, report: Report) -> None:
        condemned = list(self._engine.state.condemned)
        if not condemned or report.is_dry:
            return
        spared = await self._blobs.sweep(condemned)
        report.deleted += len(condemned) - len(spared)
        await self._engine.submit(Sweep(Pass.WARM, tuple(spared)))

    def _whose_turn(self, pass_: Pass, kept: frozenset[EventNo]) -> list[EventNo]:
        """Some of those left behind, the next ones at each run: many that must stay are in nobody's way."""
        order, after = sorted(kept), self._looked_again.get(pass_, EventNo(0))
        at = bisect_right(order, after)
        found = (order[at:] + order[:at])[:AGAIN]
        self._looked_again[pass_] = found[-1]
        return sorted(found)

    async def _did(self, command: DropHot | DropWarm, report: Report) -> bool:
        outcome = await self._engine.submit(command)
        if isinstance(outcome, Refused):
            report.keep(outcome.says, _count(command))
            _log.info("nothing is let go", because=str(outcome))
            return False
        return True


def _count(command: DropHot | DropWarm) -> int:
    """How many results were to be let go."""
    return command.results if isinstance(command, DropHot) else len(command.held) + len(command.again)


def _cut(rows: list[HotRow], until: EventNo, bytes_max: int) -> tuple[list[HotRow], EventNo]:
    """As many as may be read in one run; at least one."""
    total = 0
    for at, row in enumerate(rows):
        total += row.size
        if total > bytes_max and at:
            return rows[:at], EventNo(row.event - 1)
    return rows, until
