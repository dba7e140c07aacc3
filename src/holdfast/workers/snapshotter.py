"""Has another process make a snapshot whenever enough events have followed the last one (ENG-003)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import EventNo
from holdfast.engine.queries import ReadSource

INTERVAL_MS: Final = 1_000
_log = structlog.get_logger()


class Snapshotter:
    """Checks how far the tables are: a snapshot beyond them would not be used."""

    starts_at_once = False
    interval_ms = INTERVAL_MS

    def __init__(
        self,
        source: ReadSource,
        every_events: int,
        make: Callable[[], Awaitable[JournalHead]],
        last_event: EventNo,
    ) -> None:
        self._source, self._every_events, self._make = source, every_events, make
        self._last_event = last_event
        """The last event of the newest snapshot, also of an earlier process: a node may restart often."""
        self.snapshots_made = 0

    async def run_once(self) -> None:
        """Make a snapshot if it is due. One that fails is tried again after as many events once more."""
        if self._source.replication_status().tables_as_of - self._last_event < self._every_events:
            return
        self._last_event = self._source.replication_status().tables_as_of
        try:
            head = await self._make()
        except Exception as fault:
            _log.warning("snapshot_failed", reason=str(fault))
        else:
            self.snapshots_made += 1
            _log.info("snapshot_made", batch=head.number, last_event=head.last)
