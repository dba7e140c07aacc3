"""The dispatcher: has waiting jobs matched as soon as supply or demand changes, and by the tick (MAT-007).

It is the owner's duty: what it decides goes through the owner's journal, so one that was replaced cannot write.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from holdfast.core.match.decide import Match
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

    async def run(self) -> None:
        every_s = self._engine.policy.match.dispatch_interval_ms / 1000
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), every_s)
            self._stirred.clear()
            try:
                await self.look()
            except Unavailable as fault:
                _log.info("nothing is dispatched", because=str(fault))

    async def look(self) -> None:
        """Match until nothing more can be given; a job that nobody fits is left alone (MAT-004)."""
        while self.has_work():
            outcome = await self._engine.submit(Match())
            self.ticks += 1
            if not isinstance(outcome, Accepted) or outcome.is_repeat:
                return

    def has_work(self) -> bool:
        state = self._engine.state
        line = state.queue.line
        due_ms = line.later.next_ms()
        is_due = due_ms is not None and due_ms <= self._engine.now_ms()
        return bool(state.providers) and (bool(line.ready) or is_due)
