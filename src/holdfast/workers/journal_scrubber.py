"""Verifies the journal's whole hash chain in the background (ENG-009): after each start, then once in a while.

A start folds from a snapshot and reads nothing before it. Damage there would be noticed when a rebuild, an export or
an audit needs it, perhaps after the last good backup was overwritten.
"""

from __future__ import annotations

from typing import Final

import structlog

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import JournalHead, check_follows, head_of
from holdfast.core.base.values import BatchNo
from holdfast.engine.loop import Engine
from holdfast.history.archive_segments import head_before
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Clock

HOUR_MS: Final = 3_600_000
STEP_BATCHES, STEP_BYTES = 64, 256 << 10
"""What is hashed at a time, about a millisecond's work of the owner's loop."""
REST_MS: Final = 10
_log = structlog.get_logger()


class JournalScrubber:
    """Damage in the store stops the node: nothing may be built upon it. Damage in the archive is an alarm."""

    starts_at_once = True

    def __init__(self, engine: Engine, journal: FullJournal, clock: Clock, hours: int) -> None:
        self._engine, self._journal, self._clock = engine, journal, clock
        self.interval_ms = hours * HOUR_MS
        self.verified_until = 0
        """The batch up to which the running or the last pass has come."""
        self.batches = 0
        """Batches verified since the start."""
        self.finished_ms = 0
        """When the last whole pass ended; 0 before the first."""
        self.archive_faults = 0

    async def run_once(self) -> None:
        """One pass over store and archive."""
        try:
            head = await self._verify_store()
        except Corrupt as fault:
            _log.error("journal_damaged", reason=str(fault), verified_until=self.verified_until)
            self._engine.fail(fault)
            return
        faults = await self._journal.archive.find_damage()
        self.archive_faults, self.finished_ms = len(faults), self._clock.wall_ms()
        for message in faults:
            _log.error("archive_damaged", reason=message, hint="restore this segment from a copy")
        _log.info("journal_verified", until_batch=head.number, archive_faults=len(faults))

    async def _verify_store(self) -> JournalHead:
        """The whole chain, anew where its beginning was trimmed meanwhile."""
        while True:
            trimmed = await self._journal.store.trimmed_until()
            try:
                return await self._verify_chain(trimmed)
            except Corrupt:
                if await self._journal.store.trimmed_until() == trimmed:
                    raise

    async def _verify_chain(self, trimmed: BatchNo) -> JournalHead:
        end, head, done, size = await self._journal.tip(), JournalHead(trimmed), 0, 0
        async for batch in self._journal.store.read(trimmed, end.number):
            check_follows(head if head.number > trimmed or not trimmed else head_before(batch), batch)
            head, done, size = head_of(batch), done + 1, size + len(batch.body)
            self.verified_until, self.batches = batch.number, self.batches + 1
            if done >= STEP_BATCHES or size >= STEP_BYTES:
                done = size = 0
                await self._clock.sleep(REST_MS)
        if head.number == end.number and head != end:
            raise Corrupt("ENG-001", f"batch {end.number} is not what it was", "restore a backup")
        if head.number < end.number:
            raise Corrupt("ENG-001", f"the journal cannot be read beyond batch {head.number}", "restore a backup")
        return head
