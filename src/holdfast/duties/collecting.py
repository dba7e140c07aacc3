"""What the passes of retention have in common (RET-001, RET-003): candidates, limits, and a report of what was done."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from holdfast.core.policy.knobs import DAY_MS
from holdfast.core.result.record import Result, ResultStatus
from holdfast.core.retention.books import Pass, until
from holdfast.core.retention.decide import watermark
from holdfast.core.state import State
from holdfast.core.values import EventNo, Height
from holdfast.engine import read
from holdfast.engine.collected import Report
from holdfast.engine.loop import Engine
from holdfast.ports import Row

PAGE: Final = 500
"""Rows that are looked at in one stretch of the event loop."""


class Limits(msgspec.Struct, frozen=True):
    """RET-003: how much one run may do."""

    rows: int
    bytes: int
    ends_ms: int
    now_ms: Callable[[], int]

    def is_reached(self, report: Report) -> bool:
        return report.looked >= self.rows or report.freed_bytes >= self.bytes or self.now_ms() >= self.ends_ms


class Seen(msgspec.Struct, frozen=True):
    """What the state was like at one moment; the tables show all of it."""

    as_of: EventNo
    watermark: Height
    hot_until: EventNo
    warm_until: EventNo
    index_until: EventNo
    audit_until: EventNo
    kept_hot: frozenset[EventNo]
    kept_warm: frozenset[EventNo]


async def seen(engine: Engine) -> Seen:
    """Look at the state and wait for the tables: rows of final results never change after that."""
    found = await engine.ask(_seen)
    await engine.projector.drain()
    return found


def _seen(state: State) -> Seen:
    demoted = (until(state, Pass.HOT), until(state, Pass.WARM))
    vacuumed = (until(state, Pass.INDEX), until(state, Pass.AUDIT))
    kept = (frozenset(state.kept_hot), frozenset(state.kept_warm))
    return Seen(state.last_event, watermark(state), *demoted, *vacuumed, *kept)


async def candidates(engine: Engine, after: EventNo, highest: Height, rows_max: int) -> list[Result]:
    """RET-001: results after an event that were resolved at this height or below, in order, as far as there are any."""
    rows, _ = await engine.tables.page("result", {}, after, min(rows_max, PAGE))
    found = []
    for result in map(result_of, rows):
        if result.status is ResultStatus.UNLINKED or not 0 < result.height_resolved <= highest:
            break
        found.append(result)
    return found


def result_of(row: Row) -> Result:
    return msgspec.convert(row, Result, builtin_types=(bytes,))


class Ages:
    """The highest block that is so many days old; block times only grow."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[Height, int] = {}

    async def height(self, days: int, highest: Height) -> Height:
        """The highest block up to `highest` that was sealed at least so many days ago; 0 where none was."""
        cutoff_ms = self._engine.now_ms() - days * DAY_MS
        if days == 0 or await self._sealed_ms(highest) <= cutoff_ms:
            return highest
        return await _last_where(highest, lambda height: self._is_before(height, cutoff_ms))

    async def _is_before(self, height: Height, cutoff_ms: int) -> bool:
        return await self._sealed_ms(height) <= cutoff_ms

    async def _sealed_ms(self, height: Height) -> int:
        if height == 0:
            return 0
        if height not in self._known:
            if len(self._known) > PAGE:
                self._known.clear()
            block = await read.block(self._engine, height)
            self._known[height] = block.time_ms if block is not None else 0
        return self._known[height]


async def _last_where(highest: Height, holds: Callable[[Height], Awaitable[bool]]) -> Height:
    """The last height for which it holds; it holds for a beginning of them."""
    low, high = 0, int(highest)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if await holds(Height(middle)) else (low, middle - 1)
    return Height(low)


def cut_at_bytes(results: list[Result], bytes_max: int) -> list[Result]:
    """The first of them that are not too much together; at least one."""
    total, sums = 0, []
    for result in results:
        total += result.result_size
        sums.append(total)
    return results[: max(1, bisect_right(sums, bytes_max))]
