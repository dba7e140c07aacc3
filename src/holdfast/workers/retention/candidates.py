"""What the retention passes share (RET-001, RET-003): candidates, limits of a run, and how a command is submitted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from itertools import accumulate
from typing import Final

import msgspec
import structlog

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import EventNo, Height
from holdfast.core.policy import DAY_MS
from holdfast.core.result.model import Result, ResultStatus
from holdfast.core.tables import record_from_row
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.queries.retention import GetRetentionView, RetentionView
from holdfast.engine.retention_report import RetentionReport
from holdfast.ports import Row

PAGE: Final = 500
"""Rows read at once, before other tasks of the event loop get a turn."""
_log = structlog.get_logger()


class RunLimits(msgspec.Struct, frozen=True):
    """RET-003: how much one run may do."""

    rows: int
    bytes: int
    deadline_ms: int
    now_ms: Callable[[], int]

    def is_reached(self, report: RetentionReport) -> bool:
        return report.looked >= self.rows or report.freed_bytes >= self.bytes or self.now_ms() >= self.deadline_ms


async def load_view(engine: Engine) -> RetentionView:
    """Read the state, then wait for the tables to show it: rows of final results never change after that."""
    view = await engine.query_durable(GetRetentionView())
    await engine.wait_tables()
    return view


async def load_candidates(engine: Engine, after: EventNo, highest: Height, rows_max: int) -> list[Result]:
    """RET-001: the results after an event, up to the first that is not resolved at `highest` or below."""
    rows, _ = await engine.tables.page("result", {}, after, min(rows_max, PAGE))
    candidates = []
    for result in map(result_of, rows):
        if result.status is ResultStatus.UNLINKED or not 0 < result.height_resolved <= highest:
            break
        candidates.append(result)
    return candidates


def result_of(row: Row) -> Result:
    return record_from_row(Result, row)


class BlockAges:
    """Finds the highest block of an age; block times only grow."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sealed_at: dict[Height, int] = {}

    async def highest_older_than(self, days: int, highest: Height) -> Height:
        """The highest block up to `highest` that was sealed at least `days` ago; 0 if there is none."""
        cutoff_ms = self._engine.now_ms() - days * DAY_MS
        if days == 0 or await self._sealed_ms(highest) <= cutoff_ms:
            return highest
        return await _last_where(highest, lambda height: self._is_before(height, cutoff_ms))

    async def _is_before(self, height: Height, cutoff_ms: int) -> bool:
        return await self._sealed_ms(height) <= cutoff_ms

    async def _sealed_ms(self, height: Height) -> int:
        if height == 0:
            return 0
        if height not in self._sealed_at:
            if len(self._sealed_at) > PAGE:
                self._sealed_at.clear()
            block = await queries.block(self._engine, height)
            self._sealed_at[height] = block.time_ms if block is not None else 0
        return self._sealed_at[height]


async def _last_where(highest: Height, holds: Callable[[Height], Awaitable[bool]]) -> Height:
    """The last height for which `holds` is true, if it is true up to some height and false above."""
    low, high = 0, int(highest)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if await holds(Height(middle)) else (low, middle - 1)
    return Height(low)


def count_within(sizes: Iterable[int], bytes_max: int) -> int:
    """How many of the first sizes fit into `bytes_max` together; at least one."""
    return max(1, bisect_right(list(accumulate(sizes)), bytes_max))


async def is_accepted(engine: Engine, command: Command, count: int, report: RetentionReport) -> bool:
    """Submit a command over `count` results; a refusal is reported as the reason why they are kept."""
    outcome = await engine.submit(command)
    if isinstance(outcome, Refused):
        report.count_kept(outcome.message, count)
        _log.info("retention_refused", command=type(command).__name__, results=count, reason=str(outcome))
    return not isinstance(outcome, Refused)
