"""The keeper: has a snapshot folded, by another process, whenever enough has happened since the last one (ENG-003)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from holdfast.core.event import Tip
from holdfast.core.values import EventNo
from holdfast.engine.read import Source
from holdfast.ports import Clock

LOOK_MS: Final = 1_000
_log = structlog.get_logger()


class Keeper:
    """Looks once a second how far the tables are: a snapshot above them would not be used."""

    def __init__(
        self, source: Source, clock: Clock, every_events: int, make: Callable[[], Awaitable[Tip]], last_event: EventNo
    ) -> None:
        self._source, self._clock, self._every_events, self._make = source, clock, every_events, make
        self._last_event = last_event
        """Where the last one stands, whoever made it: nodes that are restarted often would never make one else."""
        self.made = 0

    async def run(self) -> None:
        """For ever; a snapshot that could not be made is tried again when as much has happened once more."""
        while True:
            await self._clock.sleep(LOOK_MS)
            await self.look()

    async def look(self) -> None:
        """Make one if it is time."""
        if self._source.standing().tables_as_of - self._last_event < self._every_events:
            return
        self._last_event = self._source.standing().tables_as_of
        try:
            tip = await self._make()
        except Exception as fault:
            _log.warning("no snapshot", because=str(fault))
        else:
            self.made += 1
            _log.info("snapshot", batch=tip.number, last_event=tip.last)
