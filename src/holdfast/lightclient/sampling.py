"""Sampling (DA-001): a light client checks a few shares that it draws itself, and computes how sure it may be.

A seed that only the client knows beforehand decides which shares are drawn. Each share is checked against the
commitment. There is no erasure coding: sampling bounds how many shares can be missing, with a stated confidence. It
does not show that none is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.values import PPM
from holdfast.lightclient.da.commitment import Sample, why_not_sample

SAMPLE_TAG: Final = "holdfast.sample.v1"
_WORD: Final = 2**64


class Availability(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one round of sampling."""

    total: int
    sampled: int
    refused: dict[int, str]
    """Shares that were not delivered or do not match the commitment, each with the reason."""
    missing_ppm: int
    """The part of the shares that is assumed to be missing."""
    confidence_ppm: int
    """The probability, rounded down, that this round notices it; 0 where a share was refused."""

    @property
    def is_good(self) -> bool:
        return not self.refused


def sample_indexes(commitment: bytes, seed: bytes, total: int, count: int) -> list[int]:
    """The shares to request: distinct, ascending, every set equally likely; the same for the same seed."""
    count = min(count, total)
    chosen: set[int] = set()
    words = _SampleWords(commitment, seed)
    for highest in range(total - count, total):  # Floyd's algorithm: as many draws as samples, whatever the total
        index = _uniform_below(words, highest + 1)
        chosen.add(index if index not in chosen else highest)
    return sorted(chosen)


def confidence_ppm(total: int, sampled: int, missing: int) -> int:
    """The probability, rounded down, that a sample without repetition contains one of the missing shares."""
    if missing <= 0:
        return 0
    unseen, all_ = 1, 1
    for i in range(min(sampled, total)):
        unseen, all_ = unseen * max(0, total - missing - i), all_ * (total - i)
    return PPM - -(-unseen * PPM // all_)


def assess_availability(
    commitment: bytes, total: int, indexes: list[int], samples: Mapping[int, Sample | None], missing_ppm: int = 100_000
) -> Availability:
    """Check the shares of one round and compute the confidence."""
    refused = {
        index: reason
        for index in indexes
        if (reason := _why_not_share(commitment, total, index, samples.get(index))) is not None
    }
    missing = -(-total * missing_ppm // PPM)
    confidence = 0 if refused else confidence_ppm(total, len(indexes), missing)
    return Availability(total, len(indexes), refused, missing_ppm, confidence)


def _why_not_share(commitment: bytes, total: int, index: int, sample: Sample | None) -> str | None:
    if sample is None:
        return "it did not come"
    if (sample.start, len(sample.shares)) != (index, 1):
        return f"share {sample.start} came instead"
    if sample.commitment.total != total:
        return f"it is of {sample.commitment.total} shares, not {total}"
    return why_not_sample(commitment, sample)


class _SampleWords:
    """A stream of 64-bit words from a hash with a counter."""

    def __init__(self, commitment: bytes, seed: bytes) -> None:
        self._commitment, self._seed = commitment, seed
        self._counter = 0
        self._unused: list[int] = []

    def next(self) -> int:
        if not self._unused:
            block = H(SAMPLE_TAG, self._commitment, self._seed, self._counter)
            self._unused = [int.from_bytes(block[at : at + 8], "big") for at in (24, 16, 8, 0)]
            self._counter += 1
        return self._unused.pop()


def _uniform_below(words: _SampleWords, limit: int) -> int:
    """Every number below the limit is equally likely: words that would favour low numbers are skipped."""
    fair = _WORD - _WORD % limit
    while (word := words.next()) >= fair:
        pass
    return word % limit
