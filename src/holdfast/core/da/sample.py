"""Sampling (DA-001): a light client looks at a few shares that it draws itself, and knows how sure it may be.

Which shares are asked for follows from a seed that only the client knows beforehand; the answers are checked against
the commitment. There is no erasure coding: what sampling shows is how many shares can be missing at most, with which
confidence, not that none is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.core.canon import H
from holdfast.core.da.commit import Sample, why_not_sample

SAMPLE_TAG: Final = "holdfast.sample.v1"
PPM: Final = 1_000_000
_WORD: Final = 2**64


class Availability(msgspec.Struct, frozen=True, gc=False):
    """What a round of sampling has shown."""

    total: int
    sampled: int
    refused: dict[int, str]
    """Shares that did not come or are not what was committed to, and why."""
    missing_ppm: int
    """If so large a part of the shares, or a larger one, were missing …"""
    confidence_ppm: int
    """… then this round would have noticed with this probability, rounded down; 0 where a share was refused."""

    @property
    def is_good(self) -> bool:
        return not self.refused


def drawn(commitment: bytes, seed: bytes, total: int, count: int) -> list[int]:
    """The shares to ask for: distinct, every set of them equally likely, ascending; the same for the same seed."""
    count = min(count, total)
    chosen: set[int] = set()
    words = _Words(commitment, seed)
    for highest in range(total - count, total):  # Floyd's way: as many draws as samples, whatever the total
        index = _below(words, highest + 1)
        chosen.add(index if index not in chosen else highest)
    return sorted(chosen)


def confidence_ppm(total: int, sampled: int, missing: int) -> int:
    """The probability, rounded down, that a sample without repetition meets one of the shares that are missing."""
    if missing <= 0:
        return 0
    unseen, all_ = 1, 1
    for i in range(min(sampled, total)):
        unseen, all_ = unseen * max(0, total - missing - i), all_ * (total - i)
    return PPM - -(-unseen * PPM // all_)


def judge(
    commitment: bytes, total: int, asked: list[int], got: Mapping[int, Sample | None], missing_ppm: int = 100_000
) -> Availability:
    """What the answers to one round are worth."""
    refused = {index: no for index in asked if (no := _why_not(commitment, total, index, got.get(index)))}
    missing = -(-total * missing_ppm // PPM)
    sure = 0 if refused else confidence_ppm(total, len(asked), missing)
    return Availability(total, len(asked), refused, missing_ppm, sure)


def _why_not(commitment: bytes, total: int, index: int, sample: Sample | None) -> str | None:
    if sample is None:
        return "it did not come"
    if (sample.start, len(sample.shares)) != (index, 1):
        return f"share {sample.start} came instead"
    if sample.pinned.total != total:
        return f"it is of {sample.pinned.total} shares, not {total}"
    return why_not_sample(commitment, sample)


class _Words:
    """A stream of 64-bit words from a hash with a counter."""

    def __init__(self, commitment: bytes, seed: bytes) -> None:
        self._commitment, self._seed = commitment, seed
        self._counter = 0
        self._left: list[int] = []

    def next(self) -> int:
        if not self._left:
            block = H(SAMPLE_TAG, self._commitment, self._seed, self._counter)
            self._left = [int.from_bytes(block[at : at + 8], "big") for at in (24, 16, 8, 0)]
            self._counter += 1
        return self._left.pop()


def _below(words: _Words, limit: int) -> int:
    """Every number below the limit equally likely: words that would favour the low ones are passed over."""
    fair = _WORD - _WORD % limit
    while (word := words.next()) >= fair:
        pass
    return word % limit
