"""The reaper: ends what is over, and keeps the journal's clock going while leases live (LEA-005, TTL-001, CAN-004)."""

from __future__ import annotations

from typing import Final

import structlog

from holdfast.core.clock import NoteTime
from holdfast.core.lease.acts import Reap
from holdfast.core.refusal import Unavailable
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.ports import Clock

LOOK_MS: Final = 100
"""How late an end may be noticed."""
_log = structlog.get_logger()


class Reaper:
    """An idle lease costs nothing: only the next end is looked at."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_MS)
            try:
                await self.look()
            except Unavailable as fault:
                _log.info("nothing is reaped", because=str(fault))

    async def look(self) -> None:
        """End what is over by now, lot by lot; note the time if nothing else did for a while."""
        while self._is_due():
            outcome = await self._engine.submit(Reap())
            if not isinstance(outcome, Accepted) or outcome.is_repeat:
                break
        engine = self._engine
        quiet_ms = engine.now_ms() - engine.durable.time_ms
        is_next_too_late = quiet_ms + LOOK_MS >= engine.policy.engine.clock_journal_ms
        if engine.state.leases.by_id and is_next_too_late:
            await engine.submit(NoteTime())

    def _is_due(self) -> bool:
        state, now_ms = self._engine.state, self._engine.now_ms()
        height = state.queue.heights.next_ms()
        if height is not None and height < state.open_height:
            return True
        marks = (state.leases.agenda.next_ms(), state.queue.agenda.next_ms())
        return any(at_ms is not None and at_ms <= now_ms for at_ms in marks)
