"""Following the journal: every durable event once, in order, from any cursor, without polling."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from holdfast.core import law
from holdfast.core.event import Batch, Event, Tip, tip_of
from holdfast.core.refusal import Refused, Unavailable
from holdfast.core.values import BatchNo, EventNo
from holdfast.ports import Journal

BATCHES_KEPT: Final = 1_024
BYTES_KEPT: Final = 16 << 20


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A durable event with its number and time."""

    number: EventNo
    time_ms: int
    event: Event


class Tail:
    """The newest durable batches in memory; older ones come from the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kept: deque[Batch] = deque()
        self._bytes = 0
        self._end = Tip()
        self._is_closed = False
        self._news = asyncio.Event()

    def begin(self, end: Tip) -> None:
        """Start after a batch that is durable; what came before is read from the journal."""
        self._kept.clear()
        self._bytes, self._end, self._is_closed = 0, end, False

    def add(self, batch: Batch) -> None:
        self._kept.append(batch)
        self._bytes += len(batch.body)
        while len(self._kept) > 1 and (len(self._kept) > BATCHES_KEPT or self._bytes > BYTES_KEPT):
            self._bytes -= len(self._kept.popleft().body)
        self._end = tip_of(batch)
        self._tell()

    def close(self) -> None:
        """Subscribers get what is durable and then end."""
        self._is_closed = True
        self._tell()

    def why_not_follow(self, after: EventNo) -> Refused | None:
        """A cursor that this history has not reached belongs to another one."""
        if 0 <= after <= self._end.last:
            return None
        return Refused("ENG-006", f"event {after} has not happened: the last one is {self._end.last}", _WRONG_NODE)

    async def follow(self, after: EventNo) -> AsyncIterator[Recorded]:
        """Events numbered after + 1, after + 2, … as they become durable, until the engine stops.

        ENG-006: whoever reads this has the same history; a cursor is the number of the last event seen.
        """
        while True:
            news = self._news
            if after < self._end.last:
                async for batch in self._batches(after):
                    for number, event in enumerate(law.unpack(batch), start=batch.first):
                        if number > after:
                            after = EventNo(number)
                            yield Recorded(after, batch.time_ms, event)
            elif self._is_closed:
                return
            else:
                await news.wait()

    async def _batches(self, after: EventNo) -> AsyncIterator[Batch]:
        """Durable batches that hold events above `after`; a batch kept in memory is not read from disk."""
        end = self._end
        if self._kept and self._kept[0].first <= after + 1:
            for batch in [batch for batch in self._kept if batch.last > after]:
                yield batch
            return
        number = await self._journal.batch_of(EventNo(after + 1))
        if number is None:
            raise await self._why_not_there(after)
        async for batch in self._journal.read(BatchNo(number - 1), end.number):
            yield batch

    async def _why_not_there(self, after: EventNo) -> Unavailable:
        """ENG-006: no follower is given a history with a gap; it is told where to begin."""
        floor = await self._journal.floor()
        async for batch in self._journal.read(floor, BatchNo(floor + 1)):
            says = f"events {after + 1} to {batch.first - 1} were deleted from the archive"
            return Unavailable("ENG-006", says, f"follow after event {batch.first - 1}")
        return Unavailable("ENG-006", f"event {after + 1} cannot be found", "run holdfast db check")

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


_WRONG_NODE: Final = "the cursor belongs to another node or to a newer copy of this one"
