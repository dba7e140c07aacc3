"""What the archive's workers count since the node started (OBS-001)."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from holdfast.system.histogram import Histogram

DURATION_BOUNDS_MS: Final = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)


def durations() -> Histogram:
    return Histogram(DURATION_BOUNDS_MS)


class ArchiveMetrics(msgspec.Struct):
    """Counters begin again with the process; the state has what is archived and pruned."""

    attempts_good: int = 0
    attempts_failed: int = 0
    heights_good: int = 0
    """Heights whose blobs were all archived in one run …"""
    heights_failed: int = 0
    """… and those of which one failed."""
    uploaded_bytes: int = 0
    receipts_mismatched: int = 0
    notices_refused: Counter[str] = msgspec.field(default_factory=Counter)
    """By the name of the refusal."""
    queue_len: int = 0
    pruned: int = 0
    pruned_bytes: int = 0
    prune_failures: int = 0
    """Bytes that were gone already, or differ from what was stored."""
    height_ms: Histogram = msgspec.field(default_factory=durations)
    """From the first upload of a height to its last record."""
    blob_ms: Histogram = msgspec.field(default_factory=durations)
    """One blob: uploaded, and read back where policy says so."""
