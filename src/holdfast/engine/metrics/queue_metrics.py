"""Counters and histograms that follow the events as they are applied (OBS-001).

They are not part of the state digest or of a snapshot, and every process starts at zero. No decision depends on them.
Times are those that events carry.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.values import Kind
from holdfast.system.histogram import Histogram

DURATION_BUCKETS_MS: Final = (
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
)  # fmt: skip
"""From one tick of the dispatcher to an hour."""
TICK_BUCKETS_NS: Final = tuple(ms * 1_000 for ms in (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000))
BATCH_BUCKETS_JOBS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def _by_kind() -> dict[Kind, Histogram]:
    return {kind: Histogram(DURATION_BUCKETS_MS) for kind in Kind}


class QueueMetrics(msgspec.Struct):
    """What happened in the queue since this process started."""

    counts: dict[tuple[str, str], int] = {}
    """By name and label."""
    wait_ms: dict[Kind, Histogram] = msgspec.field(default_factory=_by_kind)
    """Milliseconds from a job's admission to its first lease."""
    work_ms: dict[Kind, Histogram] = msgspec.field(default_factory=_by_kind)
    """Milliseconds from a lease to the verdict that accepted its result."""
    tick_ns: Histogram = msgspec.field(default_factory=lambda: Histogram(TICK_BUCKETS_NS))
    """Nanoseconds of each tick that assigned a job."""
    tick_jobs: Histogram = msgspec.field(default_factory=lambda: Histogram(BATCH_BUCKETS_JOBS))
    """How many jobs each of those ticks assigned."""

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        key = (name, label)
        self.counts[key] = self.counts.get(key, 0) + by

    def record_tick(self, jobs: int, starvation_picks: int, took_ns: int) -> None:
        """MAT-007: one tick; `took_ns` is measured by the caller."""
        self.tick_ns.add(took_ns)
        self.tick_jobs.add(jobs)
        if starvation_picks:
            self.count("guarded", by=starvation_picks)
