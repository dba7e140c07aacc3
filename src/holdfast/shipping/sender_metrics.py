"""What a sender of evidence counts about itself since its process began (OBS-001)."""

from __future__ import annotations

from collections import Counter

from holdfast.system.histogram import POWERS_OF_TWO, Histogram


class SenderMetrics:
    """One for all sessions of a sender; it belongs to one event loop."""

    def __init__(self) -> None:
        self.streams = 0
        """Streams that were opened."""
        self.replays = 0
        """Of these, streams that began with records which the receiver did not have."""
        self.records = 0
        """Records that were sent."""
        self.duplicates = 0
        """Of these, records that this process, or an earlier one, may have sent before."""
        self.acks = 0
        """Acks that advanced a watermark."""
        self.gaps = 0
        """How often the receiver missed records: it reported a gap, or what it needs next is not here any more."""
        self.refusals: Counter[str] = Counter()
        """Refusals by the receiver, by name."""
        self.credit_stalls = 0
        """How often a batch had to wait for credit."""
        self.ack_stalls = 0
        """Streams that were closed because acks did not advance."""
        self.batch_records, self.batch_bytes = Histogram(POWERS_OF_TWO), Histogram(POWERS_OF_TWO)
