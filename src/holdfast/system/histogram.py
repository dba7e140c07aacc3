"""How values are distributed: a count for each bucket and the sum, as Prometheus reads it (OBS-001)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import msgspec

POWERS_OF_TWO: Final = tuple((1 << bits) - 1 for bits in range(40))
"""Bounds for values whose range is not known beforehand: each bucket ends below a power of two."""


class Histogram(msgspec.Struct):
    """Counts by bucket; the last bucket takes all values above the highest bound. One adder, any number of readers."""

    bounds: tuple[int, ...]
    counts: list[int] = []
    sum: int = 0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: int, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self, scale: int = 1) -> Iterator[tuple[str, int]]:
        """Each bound divided by `scale`, as text, with the number of values up to it; `+Inf` at the end."""
        labels = (*(f"{bound / scale:.12g}" for bound in self.bounds), "+Inf")  # tidy: printed, never decided upon
        return zip(labels, accumulate(self.counts), strict=True)
