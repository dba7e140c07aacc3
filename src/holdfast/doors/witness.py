"""What is seen of evidence since the node began (OBS-001): counts, and which streams are open and how far behind."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Bounds for how many records are stored at a time."""
PERCENTILES: Final = (50, 99)


class Tally(msgspec.Struct):
    """How often since the node began."""

    records: int = 0
    duplicates: int = 0
    gaps: int = 0
    conflicts: int = 0
    poison: int = 0
    """Lines that were no records: each is a dead letter, with a stand-in in its place."""
    unheard: int = 0
    """Records that asked for something and are dead letters: badly signed, badly made, or without their bytes."""
    refused: int = 0
    """Records that asked in good order for something that the rules did not allow any more."""
    streams: int = 0
    replays: int = 0
    """Streams that began with records that the node did not have."""
    turned_away: int = 0
    """Streams that were refused, or ended by a refusal."""
    credit_stalls: int = 0
    """How often a sender had to wait because too much of it was on its way."""


class Open(msgspec.Struct):
    """One session while its stream lasts."""

    channel: str
    session: str
    acked: int = 0
    emitted: int = 0
    """The highest sequence that the sender is known to have."""

    @property
    def lag(self) -> int:
        return max(0, self.emitted - self.acked)


class Witness:
    """One for all services of evidence at a node. It belongs to one event loop."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.sizes, self.stored = [0] * (len(SIZES) + 1), 0
        self._open: dict[tuple[str, str], list[Open]] = {}

    @property
    def streams(self) -> int:
        return sum(map(len, self._open.values()))

    @contextmanager
    def watching(self, channel: str, session: str) -> Iterator[Open]:
        seen, key = Open(channel, session), (channel, session)
        self._open.setdefault(key, []).append(seen)
        try:
            yield seen
        finally:
            left = self._open[key] = [each for each in self._open[key] if each is not seen]
            if not left:
                del self._open[key]

    def stored_together(self, records: int) -> None:
        self.tally.records += records
        self.sizes[bisect_left(SIZES, records)] += 1
        self.stored += records

    def lags(self) -> list[int]:
        """Of all open streams, the smallest first; one number a channel would be too many to watch."""
        return sorted(each.lag for session in self._open.values() for each in session)

    def of(self, channel: str, session: str) -> list[Open]:
        return self._open.get((channel, session), [])

    def lag_at(self, percent: int) -> int:
        lags = self.lags()
        return lags[min(len(lags) - 1, len(lags) * percent // 100)] if lags else 0
