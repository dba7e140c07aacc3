"""Fires schedules that are due (JOB-014): by the owner, each due time once, whatever happens in between.

Whether a firing is due, and what comes of it, is decided in the loop: a command that comes late or twice changes
nothing. So the worker keeps nothing of its own, and the next owner goes on from the journal.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final

import structlog

from holdfast.core.base.errors import Refused
from holdfast.core.schedule.messages import FireSchedule
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, Outcome

INTERVAL_MS: Final = 250
"""How late a firing may be noticed."""
AT_ONCE_MAX: Final = 256
"""How many firings are submitted together: those of one midnight share batches."""
_log = structlog.get_logger()


class Scheduler:
    """Only the earliest due time is read while nothing is due."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.fired = 0
        """Firings that were decided since the node started, refused jobs included."""

    async def run_once(self) -> None:
        """Fire everything that is due now."""
        while due := self._due():
            outcomes = await asyncio.gather(*(self._engine.submit(command) for command in due))
            fired = sum(isinstance(outcome, Accepted) and not outcome.is_repeat for outcome in outcomes)
            self.fired += fired
            _log_refusals(due, outcomes)
            if not fired:
                return  # the decision has the time of its batch, a little before ours: the next run finds it

    def _due(self) -> list[FireSchedule]:
        """CAN-006: nothing fires by a clock that is not believed."""
        engine = self._engine
        if engine.clock_fault is not None:
            return []
        due = engine.undurable_state.schedules.due_until(engine.now_ms())
        return [FireSchedule(schedule.id, schedule.next_ms) for schedule in islice(due, AT_ONCE_MAX)]


def _log_refusals(commands: list[FireSchedule], outcomes: list[Outcome]) -> None:
    for command, outcome in zip(commands, outcomes, strict=True):
        if isinstance(outcome, Refused):
            _log.info("firing_refused", schedule=command.id.hex(), rule=outcome.rule, reason=outcome.message)
