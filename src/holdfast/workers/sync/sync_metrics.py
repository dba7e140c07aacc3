"""What a node counts of what its peers told it (OBS-001)."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from holdfast.system.histogram import Histogram

PROPAGATION_BOUNDS_MS: Final = (10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000)
"""A validator that is away confirms when it is back: the last ones are resends."""


class SyncMetrics(msgspec.Struct):
    """Counters begin again with the process."""

    failures: Counter[str] = msgspec.field(default_factory=Counter)
    """Notices, confirmations and packages that were refused, by the name of the refusal."""
    conflicts: int = 0
    """Notices that a validator has signed and that are not so (NTC-003)."""
    blocks: int = 0
    notices: int = 0
    found_in_archive: int = 0
    """Records that no notice told: the items were found in the archive (NTC-004)."""
    pruned: int = 0
    prune_failures: int = 0
    propagation_ms: Histogram = msgspec.field(default_factory=lambda: Histogram(PROPAGATION_BOUNDS_MS))
    """From the first time that this process sent a notice to each validator's confirmation (NTC-004)."""
    suspect: int = 0
    """Records whose bytes the archive could not show."""
