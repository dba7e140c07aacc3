"""Expires what is due, and keeps the journal's clock going while leases live (LEA-005, TTL-001, CAN-004)."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.clock_record import RecordTime
from holdfast.core.lease.messages import ExpireDue
from holdfast.core.match.input_claims import JudgeInputClaims, is_claim_due
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

INTERVAL_MS: Final = 100
"""How late an expiry may be noticed."""


class Reaper:
    """An idle lease costs nothing: only the earliest deadlines are read."""

    starts_at_once = False
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run_once(self) -> None:
        """Expire what is due, in bounded commands; record the time if no other event did for a while."""
        while self._is_due():
            outcome = await self._engine.submit(ExpireDue())
            if not isinstance(outcome, Accepted) or outcome.is_repeat:
                break
        engine = self._engine
        if engine.clock_fault is None and is_claim_due(engine.undurable_state, engine.now_ms()):
            await engine.submit(JudgeInputClaims())
        quiet_ms = engine.now_ms() - engine.durable_head.time_ms
        is_next_too_late = quiet_ms + INTERVAL_MS >= engine.policy.engine.clock_journal_ms
        if engine.undurable_state.leases.by_id and is_next_too_late:
            await engine.submit(RecordTime())

    def _is_due(self) -> bool:
        if self._engine.clock_fault is not None:
            return False  # CAN-006: nothing expires by a clock that is not believed
        state, now_ms = self._engine.undurable_state, self._engine.now_ms()
        height = state.queue.expiry_heights.earliest()
        if height is not None and height < state.open_height:
            return True
        deadlines = (state.leases.due_index.earliest(), state.queue.expiry_times.earliest())
        return any(deadline_ms is not None and deadline_ms <= now_ms for deadline_ms in deadlines)
