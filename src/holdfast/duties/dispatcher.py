"""The dispatcher: has waiting jobs matched as soon as supply or demand changes, and by the tick (MAT-007).

It is the owner's duty: what it decides goes through the owner's journal, so one that was replaced cannot write.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import structlog

from holdfast.core.lease.acts import Reap
from holdfast.core.lease.due import has_ended
from holdfast.core.match.decide import Match, is_stirred
from holdfast.core.refusal import Unavailable
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

_log = structlog.get_logger()


class Dispatcher:
    """Woken by whatever was decided; what piled up while a tick became durable is the next tick's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stirred = engine.stirred.subscribe()
        self.ticks = 0
        """Ticks that gave something,"""
        self.empty_ticks = 0
        """and those that were asked for and gave nothing."""
        self.jobs = 0
        """Jobs given."""
        self.guard_uses = 0
        """How many of them had their turn as the oldest (MAT-005)."""
        self.last_jobs = 0
        """How many the last tick gave, and"""
        self.last_ns = 0
        """how long its decision took."""
        self.total_ns = 0

    async def run(self) -> None:
        every_s = self._engine.policy.match.dispatch_interval_ms / 1000
        while True:
            with suppress(TimeoutError):  # not wait_for: on Python 3.11 it drops a cancelling that comes with the stir
                async with asyncio.timeout(every_s):
                    await self._stirred.wait()
            self._stirred.clear()
            try:
                await self.look()
            except Unavailable as fault:
                _log.info("nothing is dispatched", because=str(fault))

    async def look(self) -> None:
        """Match until nothing more can be given; a job that nobody fits is left alone (MAT-004)."""
        while self.has_work():
            if await self._has_reaped():
                continue
            outcome = await self._engine.submit(Match(time.perf_counter_ns))
            if not isinstance(outcome, Accepted) or outcome.is_repeat:
                self.empty_ticks += 1
                return
            self._count()

    async def _has_reaped(self) -> bool:
        """TTL-001: what is over is ended before anything is given; the reaper may come a moment later."""
        if not has_ended(self._engine.state, self._engine.now_ms()):
            return False
        outcome = await self._engine.submit(Reap())
        return isinstance(outcome, Accepted) and not outcome.is_repeat

    def has_work(self) -> bool:
        return is_stirred(self._engine.state, self._engine.now_ms())

    def _count(self) -> None:
        last = self._engine.state.supply.last
        self.ticks += 1
        self.jobs += last.jobs
        self.guard_uses += last.guard_uses
        self.last_jobs, self.last_ns = last.jobs, last.took
        self.total_ns += last.took
        self._engine.state.tally.tick(last.jobs, last.guard_uses, last.took)
