"""What is counted as events take effect (OBS-001): how often, and how long it took, sorted into buckets.

It is beside the facts, not one of them: no part of the digest or of a snapshot, and it begins anew with every start.
Nothing is decided by it. Times are those that events carry.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import msgspec

from holdfast.core.values import Kind

MILLISECONDS: Final = (
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
)  # fmt: skip
"""From one tick of the dispatcher to an hour: where waits and work are told apart."""
NANOSECONDS: Final = tuple(ms * 1_000 for ms in (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000))
JOBS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Spread(msgspec.Struct):
    """How something was spread: a count for each bucket, the last for all above, and the sum."""

    marks: tuple[int, ...]
    counts: list[int] = []
    sum: int = 0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.marks) + 1)

    def add(self, value: int) -> None:
        self.counts[bisect_left(self.marks, value)] += 1
        self.sum += value


def _by_kind() -> dict[Kind, Spread]:
    return {kind: Spread(MILLISECONDS) for kind in Kind}


class Tally(msgspec.Struct):
    """What happened in the queue since this process began."""

    counts: dict[tuple[str, str], int] = {}
    """By what it was and what of it."""
    waits: dict[Kind, Spread] = msgspec.field(default_factory=_by_kind)
    """Milliseconds from a job's admission to its first lease."""
    works: dict[Kind, Spread] = msgspec.field(default_factory=_by_kind)
    """Milliseconds from a lease to the verdict that accepted what came of it."""
    ticks: Spread = msgspec.field(default_factory=lambda: Spread(NANOSECONDS))
    """Nanoseconds that the decision of a tick took which gave something, and"""
    batches: Spread = msgspec.field(default_factory=lambda: Spread(JOBS))
    """how many jobs it gave."""

    def count(self, what: str, of: str = "", by: int = 1) -> None:
        key = (what, of)
        self.counts[key] = self.counts.get(key, 0) + by

    def tick(self, jobs: int, guard_uses: int, took_ns: int) -> None:
        """MAT-007: one tick; `took_ns` is measured by whoever asked for it."""
        self.ticks.add(took_ns)
        self.batches.add(jobs)
        if guard_uses:
            self.count("guarded", by=guard_uses)
