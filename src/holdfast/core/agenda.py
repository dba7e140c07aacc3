"""What comes due when: ids in buckets, of a second where it is time, so that waiting costs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import msgspec

BUCKET_MS = 1_000
SPARE = 64
"""So many numbers of buckets that are gone are left in the heap, besides as many as there are buckets."""


class Agenda(msgspec.Struct):
    """An index beside the records, never a fact of its own: it is made again from them."""

    buckets: dict[int, dict[bytes, None]] = {}
    order: list[int] = []
    """A heap of the buckets' numbers; one that is gone is skipped."""
    width: int = BUCKET_MS
    """How much a bucket covers; 1 where heights are counted instead of milliseconds."""

    def put(self, id_: bytes, at_ms: int) -> None:
        number = at_ms // self.width
        bucket = self.buckets.get(number)
        if bucket is None:
            self._skip_gone()
            bucket = self.buckets[number] = {}
            heappush(self.order, number)
            self._weed()
        bucket[id_] = None

    def fill(self, due: Iterable[tuple[bytes, int]]) -> None:
        """Put many in, as a start does with all there are."""
        buckets, width = self.buckets, self.width
        for id_, at_ms in due:
            bucket = buckets.get(number := at_ms // width)
            if bucket is None:
                bucket = buckets[number] = {}
            bucket[id_] = None
        self.order = sorted(buckets)  # which is a heap

    def remove(self, id_: bytes, at_ms: int) -> None:
        number = at_ms // self.width
        bucket = self.buckets.get(number)
        if bucket is not None and id_ in bucket:
            del bucket[id_]
            if not bucket:
                del self.buckets[number]

    def move(self, id_: bytes, from_ms: int, to_ms: int) -> None:
        self.remove(id_, from_ms)
        self.put(id_, to_ms)

    def upto(self, now_ms: int) -> Iterator[bytes]:
        """Whatever may be due now, oldest bucket first; the caller looks at the exact time."""
        for number in sorted(self._numbers_upto(now_ms // self.width)):
            yield from self.buckets.get(number, ())

    def _numbers_upto(self, last: int) -> set[int]:
        """The part of the heap that is due, and nothing beyond it."""
        due: set[int] = set()
        todo = [0]
        while todo:
            at = todo.pop()
            if at < len(self.order) and self.order[at] <= last:
                due.add(self.order[at])
                todo += (2 * at + 1, 2 * at + 2)
        return due

    def next_ms(self) -> int | None:
        """When it is worth looking again, None where nothing waits."""
        self._skip_gone()
        return self.order[0] * self.width if self.order else None

    def _weed(self) -> None:
        """A bucket that comes and goes behind one that stays leaves its number each time: not more than a bound."""
        if len(self.order) > 2 * len(self.buckets) + SPARE:
            self.order = sorted(self.buckets)  # which is a heap

    def _skip_gone(self) -> None:
        while self.order and self.order[0] not in self.buckets:
            heappop(self.order)
