"""The nurse: looks after providers that are due, which is few of them, and forgives them the node's own absence.

PRV-002: missed heartbeats, poor health, jail that is over, stake that is free again; LEA-007: leases of those who may
not work any more. What is to be done is decided in core; a provider that is well costs nothing.
"""

from __future__ import annotations

from typing import Final

import structlog

from holdfast.core.lease.ousting import is_due
from holdfast.core.provider.acts import Tend
from holdfast.core.refusal import Unavailable
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.ports import Clock

LOOK_MS: Final = 200
"""How late a lease of somebody who was jailed may be ended."""
_log = structlog.get_logger()


class Nurse:
    """The owner's duty: what it asks for goes through the journal like everything else."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock

    async def run(self) -> None:
        """For ever, and at once: nobody is to be blamed for the time in which there was no node (LEA-008)."""
        while True:
            try:
                await self.look()
            except Unavailable as fault:
                _log.info("nobody is looked after", because=str(fault))
            await self._clock.sleep(LOOK_MS)

    async def look(self) -> None:
        """Lot by lot, until nobody is due."""
        engine = self._engine
        while is_due(engine.state, engine.now_ms()):
            outcome = await engine.submit(Tend())
            if not isinstance(outcome, Accepted) or outcome.is_repeat:
                break
