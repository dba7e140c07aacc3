"""What comes due when: ids in buckets of a second, so that waiting costs nothing and an entry is removed at once."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import msgspec

BUCKET_MS = 1_000


class Agenda(msgspec.Struct):
    """An index beside the records, never a fact of its own: it is made again from them."""

    buckets: dict[int, dict[bytes, None]] = {}
    order: list[int] = []
    """A heap of the buckets' numbers; one that is gone is skipped."""

    def put(self, id_: bytes, at_ms: int) -> None:
        number = at_ms // BUCKET_MS
        bucket = self.buckets.get(number)
        if bucket is None:
            self._skip_gone()
            bucket = self.buckets[number] = {}
            heappush(self.order, number)
        bucket[id_] = None

    def remove(self, id_: bytes, at_ms: int) -> None:
        number = at_ms // BUCKET_MS
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
        for number in sorted(n for n in self.buckets if n <= now_ms // BUCKET_MS):
            yield from self.buckets[number]

    def next_ms(self) -> int | None:
        """When it is worth looking again, None where nothing waits."""
        self._skip_gone()
        return self.order[0] * BUCKET_MS if self.order else None

    def _skip_gone(self) -> None:
        while self.order and self.order[0] not in self.buckets:
            heappop(self.order)
