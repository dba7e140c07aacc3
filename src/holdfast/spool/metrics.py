"""One reading of what the spool counts about itself, for export."""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.system.histogram import Histogram


class SpoolMetrics(msgspec.Struct, kw_only=True):
    """All counts and levels at one moment."""

    spooled_sequence: int
    acked_sequence: int
    waiting_records: int
    """Emitted and not yet spooled."""
    unacked_records: int
    oldest_unacked_age_ms: int
    """0 where everything is acked."""
    session_bytes: int
    channel_bytes: int
    """All files of the channel as last measured, and what this session has written since."""
    channel_bytes_max: int
    """The cap of the channel."""
    disk_free_bytes: int
    """What the disk had left when the folder was last measured."""
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
