"""Whether an id was claimed before the last checkpoint (ENG-005): a set of key prefixes, and a lookup on a hit."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.state import State
from holdfast.ports import Tables

BUCKETS: Final = 4096
END_BYTES: Final = 8


class Prefixes:
    """Eight bytes per key instead of a hundred: says "certainly new" for nearly all new keys, never for an old one.

    They are in sorted buckets, which are cheap to add to and quicker to sort than all at once.
    """

    def __init__(self) -> None:
        self._buckets = [array("Q") for _ in range(BUCKETS)]

    def load(self, lots: Iterable[Sequence[bytes]]) -> None:
        """Take all keys that are there at the start."""
        buckets = self._buckets
        for keys in lots:
            for prefix in prefixes_of(keys):
                buckets[prefix % BUCKETS].append(prefix)
        self._buckets = [array("Q", sorted(bucket)) for bucket in buckets]

    def add(self, key: bytes) -> None:
        prefix = prefix_of(key)
        insort(self._buckets[prefix % BUCKETS], prefix)

    def may_hold(self, key: bytes) -> bool:
        prefix = prefix_of(key)
        bucket = self._buckets[prefix % BUCKETS]
        at = bisect_left(bucket, prefix)
        return at < len(bucket) and bucket[at] == prefix


def prefix_of(key: bytes) -> int:
    """Both ends of a key, so that ids which count up, from either end, are told apart like hashes are."""
    return int.from_bytes(key[:END_BYTES], "big") ^ int.from_bytes(key[-END_BYTES:], "big")


def prefixes_of(keys: Sequence[bytes]) -> Iterable[int]:
    """The same of many keys at once, as one long number; a start does this with millions of them."""
    if not all(len(key) >= END_BYTES for key in keys):
        return map(prefix_of, keys)
    ends = (b"".join([key[:END_BYTES] for key in keys]), b"".join([key[-END_BYTES:] for key in keys]))
    first, last = (int.from_bytes(each, "big") for each in ends)
    found = array("Q", (first ^ last).to_bytes(END_BYTES * len(keys), "big"))
    if sys.byteorder == "little":
        found.byteswap()
    return found


class History:
    """Claims that only the tables remember."""

    RECALLED_MAX = 10_000

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._prefixes = Prefixes()

    async def load(self) -> None:
        self._prefixes.load([keys async for keys in self._tables.claim_keys()])

    def must_recall(self, state: State, key: bytes) -> bool:
        """True where memory does not know the key and the tables might."""
        return self._prefixes.may_hold(key) and not state.claims.knows(key)

    async def recall(self, state: State, key: bytes) -> None:
        """Bring an old claim back to memory, so that the decision sees it; a stranger with the same prefix is none."""
        found = await self._tables.find_claim(key)
        if len(state.claims.recalled) >= self.RECALLED_MAX:
            state.claims.recalled.clear()
        if found is not None:
            state.claims.recalled[key] = found

    def hand_over(self, state: State, keys: Iterable[bytes]) -> None:
        """The tables hold these claims now: their prefixes suffice in memory."""
        for key in keys:
            self._prefixes.add(key)
            state.claims.recent.pop(key, None)
