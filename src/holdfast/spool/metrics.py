"""What the spool counts about itself: plain numbers, cheap to keep, for whoever exports them."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

_BUCKETS: Final = 40


class Histogram:
    """How often a value fell below each power of two; one adder, any number of readers."""

    __slots__ = ("buckets", "count", "last", "most", "total")

    def __init__(self) -> None:
        self.buckets = [0] * _BUCKETS
        self.count = self.total = self.most = self.last = 0

    def add(self, value: int) -> None:
        self.buckets[min(value.bit_length(), _BUCKETS - 1)] += 1
        self.count += 1
        self.total += value
        self.last = value
        self.most = max(self.most, value)

    def below(self, share: float) -> int:
        """A power of two that this share of the values lies below."""
        wanted, seen = share * self.count, 0
        for bits, times in enumerate(self.buckets):
            seen += times
            if seen >= wanted:
                return 1 << bits
        return 1 << _BUCKETS


class Metrics(msgspec.Struct, kw_only=True):
    """One reading of everything."""

    spooled_sequence: int
    acked_sequence: int
    waiting_records: int
    """Emitted and not yet spooled."""
    unacked_records: int
    oldest_unacked_age_ms: int
    """0 where everything is acked."""
    session_bytes: int
    channel_bytes: int
    """Of the whole channel's folder, as last measured, and what this session wrote since."""
    commits: int
    commit_records: Histogram
    sync_us: Histogram
    refusals: Counter[str]
    """By the refusal's name."""
    replays: int
    replayed_records: int
    quarantined_records: int
    compactions: int
    failures: int
    """Commits whose write or sync failed."""
