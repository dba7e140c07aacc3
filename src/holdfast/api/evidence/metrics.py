"""Metrics of evidence since the node started (OBS-001): counters, batch sizes, open streams and their lag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from holdfast.system.histogram import Histogram

BATCH_SIZE_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Bounds for the number of records that are stored at a time."""
PERCENTILES: Final = (50, 99)


class StreamProgress(msgspec.Struct):
    """How far one session has come on one open stream."""

    channel: str
    session: str
    acked: int = 0
    emitted: int = 0
    """The highest sequence that the sender is known to have."""

    @property
    def lag(self) -> int:
        return max(0, self.emitted - self.acked)


class EvidenceMetrics(msgspec.Struct):
    """One for all evidence services of a node. It belongs to one event loop."""

    records: int = 0
    duplicates: int = 0
    gaps: int = 0
    conflicts: int = 0
    malformed: int = 0
    """Lines that are not records: each is a dead letter, and a placeholder takes its place."""
    invalid_requests: int = 0
    """Records whose request is a dead letter: wrong signature, unreadable, or its output is missing."""
    refused_requests: int = 0
    """Records with a valid request that the rules refuse."""
    streams: int = 0
    replays: int = 0
    """Streams that began with records that the node did not have."""
    refused_streams: int = 0
    """Streams that were refused, or ended by a refusal."""
    credit_stalls: int = 0
    """How often a sender waited because too many of its bytes were not stored yet."""
    batch_sizes: Histogram = msgspec.field(default_factory=lambda: Histogram(BATCH_SIZE_BOUNDS))
    """Records that were stored at a time."""
    _open: dict[tuple[str, str], list[StreamProgress]] = {}

    @property
    def open_stream_count(self) -> int:
        return sum(map(len, self._open.values()))

    @contextmanager
    def track_stream(self, channel: str, session: str) -> Iterator[StreamProgress]:
        """Inside, the stream counts as open."""
        progress, key = StreamProgress(channel, session), (channel, session)
        self._open.setdefault(key, []).append(progress)
        try:
            yield progress
        finally:
            remaining = self._open[key] = [each for each in self._open[key] if each is not progress]
            if not remaining:
                del self._open[key]

    def count_stored(self, records: int) -> None:
        self.records += records
        self.batch_sizes.add(records)

    def all_streams(self) -> list[StreamProgress]:
        return [each for session in self._open.values() for each in session]

    def lags(self) -> list[int]:
        """Of all open streams, the smallest first; a metric for each channel would be too many."""
        return sorted(each.lag for each in self.all_streams())

    def open_streams(self, channel: str, session: str) -> list[StreamProgress]:
        return self._open.get((channel, session), [])

    def lag_percentile(self, percent: int) -> int:
        lags = self.lags()
        return lags[min(len(lags) - 1, len(lags) * percent // 100)] if lags else 0
