"""Subscriptions to the journal: every durable event once, in order, from any cursor, without polling."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from holdfast.core import journal_codec
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.event import Batch, Event, JournalHead, head_of
from holdfast.core.base.values import BatchNo, EventNo
from holdfast.ports import Journal

BATCHES_KEPT: Final = 1_024
BYTES_KEPT: Final = 4 << 20
UNPACKED_KEPT: Final = 8
"""Of the newest batches the events are kept, too: all who follow the journal read them at the same time."""


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """A durable event with its number and time."""

    number: EventNo
    time_ms: int
    event: Event


class EventStream:
    """The newest durable batches in memory; older ones come from the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._recent: deque[Batch] = deque()
        self._bytes = 0
        self._unpacked: dict[BatchNo, list[StoredEvent]] = {}
        self._head = JournalHead()
        self._is_closed = False
        self._appended = asyncio.Event()

    def begin(self, end: JournalHead) -> None:
        """Start after a batch that is durable; what came before is read from the journal."""
        self._recent.clear()
        self._unpacked.clear()
        self._bytes, self._head, self._is_closed = 0, end, False

    def add(self, batch: Batch) -> None:
        self._recent.append(batch)
        self._bytes += len(batch.body)
        while len(self._recent) > 1 and (len(self._recent) > BATCHES_KEPT or self._bytes > BYTES_KEPT):
            self._bytes -= len(self._recent.popleft().body)
        self._head = head_of(batch)
        self._unpacked.pop(BatchNo(batch.number - UNPACKED_KEPT), None)
        self._notify()

    def close(self) -> None:
        """Subscribers get what is durable and then end."""
        self._is_closed = True
        self._notify()

    def why_not_follow(self, after: EventNo) -> Refused | None:
        """A cursor above the last event belongs to another journal."""
        if 0 <= after <= self._head.last:
            return None
        return Refused("ENG-006", f"event {after} has not happened: the last one is {self._head.last}", _WRONG_NODE)

    async def follow(self, after: EventNo) -> AsyncIterator[StoredEvent]:
        """Events numbered after + 1, after + 2, … as they become durable, until the engine stops.

        ENG-006: whoever reads this has the same history; a cursor is the number of the last event seen.
        """
        async with aclosing(self.follow_batches(after)) as batches:
            async for events in batches:
                for stored in events:
                    yield stored

    async def follow_batches(self, after: EventNo) -> AsyncGenerator[Sequence[StoredEvent], None]:
        """The same events, those of one batch at a time."""
        while True:
            appended = self._appended
            if after < self._head.last:
                async for batch in self._batches(after):
                    events = self._events_of(batch)
                    yield events[after + 1 - batch.first :] if after >= batch.first else events
                    after = batch.last
            elif self._is_closed:
                return
            else:
                await appended.wait()

    def _events_of(self, batch: Batch) -> list[StoredEvent]:
        if (events := self._unpacked.get(batch.number)) is not None:
            return events
        unpacked = enumerate(journal_codec.unpack(batch), start=batch.first)
        events = [StoredEvent(EventNo(number), batch.time_ms, event) for number, event in unpacked]
        if self._head.number - UNPACKED_KEPT < batch.number:
            self._unpacked[batch.number] = events
        return events

    async def _batches(self, after: EventNo) -> AsyncIterator[Batch]:
        """Durable batches that hold events above `after`; a batch kept in memory is not read from disk."""
        end = self._head
        if self._recent and self._recent[0].first <= after + 1:
            for batch in [batch for batch in self._recent if batch.last > after]:
                yield batch
            return
        number = await self._journal.batch_of(EventNo(after + 1))
        if number is None:
            raise await self._why_not_stored(after)
        async for batch in self._journal.read(BatchNo(number - 1), end.number):
            yield batch

    async def deleted_until(self) -> EventNo:
        """The event before the first one that is still stored."""
        trimmed_until = await self._journal.trimmed_until()
        async for batch in self._journal.read(trimmed_until, BatchNo(trimmed_until + 1)):
            return EventNo(batch.first - 1)
        return EventNo(0)

    async def _why_not_stored(self, after: EventNo) -> Unavailable:
        """ENG-006: no subscriber gets a history with a gap; the error says where to begin."""
        deleted_until = await self.deleted_until()
        if deleted_until <= after:
            return Unavailable("ENG-006", f"event {after + 1} cannot be found", "run holdfast db check")
        message = f"events {after + 1} to {deleted_until} were deleted from the archive"
        return Unavailable("ENG-006", message, f"follow after event {deleted_until}")

    def _notify(self) -> None:
        appended, self._appended = self._appended, asyncio.Event()
        appended.set()


_WRONG_NODE: Final = "the cursor belongs to another node or to a newer copy of this one"
