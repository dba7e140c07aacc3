"""When ids become due: they are kept in buckets (of one second for times), so that waiting costs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import msgspec

BUCKET_MS = 1_000
STALE_ENTRIES_MAX = 64
"""How many stale bucket numbers the heap may hold, besides as many as there are buckets."""


class DueIndex(msgspec.Struct):
    """An index beside the records: it can always be rebuilt from them."""

    buckets: dict[int, dict[bytes, None]] = {}
    heap: list[int] = []
    """A heap of the buckets' numbers; the number of a deleted bucket is skipped."""
    bucket_width: int = BUCKET_MS
    """How much a bucket covers; 1 where heights are counted instead of milliseconds."""

    def schedule(self, id_: bytes, at_ms: int) -> None:
        self.schedule_many(((id_, at_ms),))

    def schedule_many(self, due: Iterable[tuple[bytes, int]]) -> None:
        buckets, width = self.buckets, self.bucket_width
        for id_, at_ms in due:
            bucket = buckets.get(number := at_ms // width)
            if bucket is None:
                bucket = self._new_bucket(number)
            bucket[id_] = None

    def _new_bucket(self, number: int) -> dict[bytes, None]:
        """A bucket that is deleted behind a living one leaves its number in the heap: these stale ones are bounded."""
        self._drop_empty_buckets()
        self.buckets[number] = bucket = dict[bytes, None]()
        heappush(self.heap, number)
        if len(self.heap) > 2 * len(self.buckets) + STALE_ENTRIES_MAX:
            self.heap = sorted(self.buckets)  # which is a heap
        return bucket

    def remove(self, id_: bytes, at_ms: int) -> None:
        self.remove_many(((id_, at_ms),))

    def remove_many(self, due: Iterable[tuple[bytes, int]]) -> None:
        """Ids that are not there are ignored."""
        buckets, width = self.buckets, self.bucket_width
        for id_, at_ms in due:
            bucket = buckets.get(number := at_ms // width)
            if bucket is not None and id_ in bucket:
                del bucket[id_]
                if not bucket:
                    del buckets[number]

    def move(self, id_: bytes, from_ms: int, to_ms: int) -> None:
        self.move_many(((id_, from_ms, to_ms),))

    def move_many(self, moves: Iterable[tuple[bytes, int, int]]) -> None:
        """Within one bucket an id keeps its place."""
        width = self.bucket_width
        if moved := [move for move in moves if move[1] // width != move[2] // width]:
            self.remove_many([(id_, from_ms) for id_, from_ms, _ in moved])
            self.schedule_many([(id_, to_ms) for id_, _, to_ms in moved])

    def due_until(self, now_ms: int) -> Iterator[bytes]:
        """All ids that may be due now, oldest bucket first; the caller checks the exact time."""
        for number in sorted(self._buckets_until(now_ms // self.bucket_width)):
            yield from self.buckets.get(number, ())

    def _buckets_until(self, last: int) -> set[int]:
        """The part of the heap that is due, and nothing beyond it."""
        due: set[int] = set()
        todo = [0]
        while todo:
            at = todo.pop()
            if at < len(self.heap) and self.heap[at] <= last:
                due.add(self.heap[at])
                todo += (2 * at + 1, 2 * at + 2)
        return due

    def earliest(self) -> int | None:
        """When the first id may be due, None where nothing is scheduled."""
        self._drop_empty_buckets()
        return self.heap[0] * self.bucket_width if self.heap else None

    def _drop_empty_buckets(self) -> None:
        while self.heap and self.heap[0] not in self.buckets:
            heappop(self.heap)
