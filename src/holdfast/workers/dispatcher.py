"""Has waiting jobs matched as soon as supply or demand changes, and at an interval (MAT-007).

It runs on the owner: its commands go through the owner's journal, so a dispatcher of a replaced owner cannot write.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import chain, islice
from typing import Final

import structlog

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import TaskId
from holdfast.core.lease.decide import why_must_expire
from holdfast.core.lease.messages import ExpireDue
from holdfast.core.lease.model import HasLeases
from holdfast.core.match.decide import may_have_work
from holdfast.core.match.messages import Match
from holdfast.engine.loop import Engine
from holdfast.engine.metrics.event_metrics import metrics_of
from holdfast.engine.outcome import Accepted

_log = structlog.get_logger()

EXPIRY_SCAN_MAX: Final = 256
"""Jobs with submissions stay due until their verdict: behind many of them, the reaper finds the others."""


class Dispatcher:
    """Woken by every decided batch; what arrives while a tick becomes durable is matched by the next tick."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = engine.changed.subscribe()
        self.ticks = 0
        """Ticks that assigned jobs."""
        self.empty_ticks = 0
        """Ticks that assigned nothing."""
        self.jobs = 0
        """Jobs assigned."""
        self.starvation_picks = 0
        """Jobs that were assigned because they were the oldest (MAT-005)."""
        self.last_jobs = 0
        """Jobs that the last tick assigned."""
        self.last_ns = 0
        """How long the decision of the last tick took."""
        self.total_ns = 0

    async def run(self) -> None:
        every_s = self._engine.policy.match.dispatch_interval_ms / 1000
        while True:
            # Not wait_for: on Python 3.11 it drops a cancellation that arrives with the signal.
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.run_once()
            except Unavailable as fault:
                _log.info("dispatch_failed", reason=str(fault))

    async def run_once(self) -> None:
        """Match until no more jobs can be assigned; a job without an eligible provider keeps waiting (MAT-004)."""
        while self.has_work():
            if await self._has_expired_due():
                continue
            outcome = await self._engine.submit(Match(time.perf_counter_ns))
            if not isinstance(outcome, Accepted) or outcome.is_repeat:
                self.empty_ticks += 1
                return
            self._record_tick()

    async def _has_expired_due(self) -> bool:
        """TTL-001: expired jobs are ended before anything is assigned; the reaper may run a moment later."""
        if not has_expired_jobs(self._engine.undurable_state, self._engine.now_ms()):
            return False
        outcome = await self._engine.submit(ExpireDue())
        return isinstance(outcome, Accepted) and not outcome.is_repeat

    def has_work(self) -> bool:
        return may_have_work(self._engine.undurable_state, self._engine.now_ms())

    def _record_tick(self) -> None:
        last = self._engine.undurable_state.provider_index.last_tick
        self.ticks += 1
        self.jobs += last.jobs
        self.starvation_picks += last.starvation_picks
        self.last_jobs, self.last_ns = last.jobs, last.duration
        self.total_ns += last.duration
        metrics_of(self._engine.undurable_state).record_tick(last.jobs, last.starvation_picks, last.duration)


def has_expired_jobs(state: HasLeases, now_ms: int) -> bool:
    """TTL-001: checks the jobs that may be due by now, oldest first; mostly there are none."""
    queue = state.queue
    due = chain(queue.expiry_times.due_until(now_ms), queue.expiry_heights.due_until(state.open_height - 1))
    return any(why_must_expire(state, queue.jobs[TaskId(id_)], now_ms) for id_ in islice(due, EXPIRY_SCAN_MAX))
