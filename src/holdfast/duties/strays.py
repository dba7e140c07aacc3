"""Strays (RET-002): files on the disk that nobody names, such as outputs that were handed over and never accepted.

They go the way of all warm bytes: an event condemns them, then they are deleted, then an event says that they are gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from holdfast.core.policy.knobs import HOUR_MS
from holdfast.core.refusal import Refused
from holdfast.core.retention.acts import DropWarm, Lot, Stray
from holdfast.core.retention.decide import HANDED_IN, not_needed
from holdfast.core.values import Height
from holdfast.duties.collecting import PAGE, Limits, Seen, result_of
from holdfast.engine.collected import Report
from holdfast.engine.loop import Engine
from holdfast.ports import Aged, Blobs, stands_at

OF_A_RESULT = "a result has these bytes"
_log = structlog.get_logger()


class Strays:
    """Files in the order of their digests, some at a time. `sweep` deletes what is condemned."""

    def __init__(self, engine: Engine, blobs: Blobs, sweep: Callable[[Report], Awaitable[None]]) -> None:
        self._engine, self._blobs, self._sweep = engine, blobs, sweep

    async def step(self, seen: Seen, at: int, limits: Limits, report: Report) -> int:
        """Files from a place on; the place to go on from."""
        before_ms = self._engine.now_ms() - self._engine.policy.result.stray_hours * HOUR_MS
        aged, reached = await self._blobs.aged(before_ms, at, min(PAGE, limits.rows - report.looked))
        strays = await self._nobodys(seen, aged)
        going, reached = _cut(strays, reached, limits.bytes - report.freed_bytes)
        looked = sum(stands_at(digest) < reached for digest, _ in aged)
        report.looked += looked
        if looked > len(going):
            report.keep(OF_A_RESULT, looked - len(going))
        if going:
            await self._let_go(seen, going, report)
        return reached

    async def _nobodys(self, seen: Seen, aged: list[Aged]) -> list[Stray]:
        """Those that no record says are on the disk: it has let go of them, or there never was one."""
        digests = [digest for digest, _ in aged]
        rows = map(result_of, await self._engine.tables.find("result", "result_digest", digests) if digests else ())
        needed = {row.result_digest for row in rows if row.event > seen.warm_until or row.event in seen.kept_warm}
        return [each for each in aged if each[0] not in needed]

    async def _let_go(self, seen: Seen, strays: list[Stray], report: Report) -> None:
        going = await self._engine.ask(partial(not_needed, as_of=seen.as_of, strays=tuple(strays)))
        if len(going) < len(strays):
            report.keep(HANDED_IN, len(strays) - len(going))
        if not report.is_dry:
            outcome = await self._engine.submit(DropWarm(Lot(seen.as_of, Height(0), seen.warm_until), strays=going))
            if isinstance(outcome, Refused):
                report.keep(outcome.says, len(going))
                _log.info("no stray is let go", because=str(outcome))
                return
        report.dropped += len(going)
        report.freed_bytes += sum(size for _, size in going)
        await self._sweep(report)


def _cut(strays: list[Stray], reached: int, bytes_max: int) -> tuple[list[Stray], int]:
    """As many as may go in one run, at least one, and the place to go on from."""
    total = 0
    for at, (digest, size) in enumerate(strays):
        total += size
        if total > bytes_max and at:
            return strays[:at], stands_at(digest)
    return strays, reached
