"""What a sender of evidence counts about itself since its process began (OBS-001)."""

from __future__ import annotations

from collections import Counter

from holdfast.spool.metrics import Histogram


class Tally:
    """One for all sessions of a sender; it belongs to one event loop."""

    def __init__(self) -> None:
        self.streams = 0
        """That were opened."""
        self.replays = 0
        """Of them, those that began with records which the receiver did not have."""
        self.records = 0
        self.duplicates = 0
        """Records that this process, or one before it, may have sent already."""
        self.acks = 0
        """That moved a mark."""
        self.gaps = 0
        """How often the receiver missed something: it said so, or what it lacks is not here any more."""
        self.refused: Counter[str] = Counter()
        """Noes of the receiver, by name."""
        self.credit_stalls = 0
        """How often something ready had to wait for room."""
        self.stand_stills = 0
        """Streams that were cut because acks stood still."""
        self.batch_records, self.batch_bytes = Histogram(), Histogram()
