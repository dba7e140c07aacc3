"""The seed and the shuffle of a tick (MAT-001, MAT-003): anyone can compute them, no one can choose them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha3_256
from itertools import chain, count
from struct import Struct
from typing import Final, TypeVar

from holdfast.core.base.canonical import H, hash_prefix
from holdfast.core.base.values import ChainId, Height, ProviderId, Seed

MATCH_TAG: Final = "AICF|match"
T = TypeVar("T")

_WORDS: Final = 2**64
_four_words = Struct(">4Q").unpack


def epoch_id(height: Height, epoch_blocks: int) -> int:
    """MAT-001: the epoch that a height belongs to."""
    return height // epoch_blocks


def seed(chain_id: ChainId, epoch_id: int, block_height: Height, beacon: bytes) -> Seed:
    """MAT-001: the seed of a tick, from height and beacon of the head."""
    return Seed(H(MATCH_TAG, chain_id, epoch_id, block_height, beacon))


def draws(seed: Seed) -> Callable[[int], int]:
    """MAT-003: the `draw(n)` of this seed: each call gives the next unbiased number in 0 … n−1."""
    words = _words(seed)

    def draw(n: int) -> int:
        below = _WORDS - _WORDS % n
        for word in words:
            if word < below:
                return word % n
        raise AssertionError("the stream has no end")

    return draw


def shuffle(seed: Seed, providers: Iterable[ProviderId]) -> list[ProviderId]:
    """MAT-003: the providers sorted by id, then Fisher–Yates with the draws of the seed."""
    return shuffle_in_place(seed, sorted(providers))


def shuffle_in_place(seed: Seed, order: list[T]) -> list[T]:
    """The same for a list that is in the order of its ids already; in place."""
    n = len(order)
    surely = _WORDS - n  # no `draw` of this shuffle skips a word below this, whatever its n
    if n < 2:
        return order
    for word in _words(seed):  # `draw(n)` written out: a tick shuffles ten thousand providers
        if word < surely or word < _WORDS - _WORDS % n:
            j = word % n
            n -= 1
            order[n], order[j] = order[j], order[n]
            if n == 1:
                break
    return order


def _words(seed: Seed) -> Iterator[int]:
    """Four words of each `H(MATCH_TAG, seed, counter)`, with the constant frames written once (CAN-001)."""
    stem = hash_prefix(MATCH_TAG, seed) + (8).to_bytes(4, "big")
    return chain.from_iterable(_four_words(sha3_256(stem + counter.to_bytes(8, "big")).digest()) for counter in count())
