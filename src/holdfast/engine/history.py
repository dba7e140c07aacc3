"""Whether an id was claimed before the last checkpoint (ENG-005): a set of key prefixes, and a lookup on a hit."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from holdfast.core.state import State
from holdfast.ports import Tables


class Prefixes:
    """Eight bytes per key instead of a hundred: says "certainly new" for nearly all new keys, never for an old one."""

    def __init__(self) -> None:
        self._buckets = [array("Q") for _ in range(4096)]

    def add(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            prefix = _prefix(key)
            bucket = self._buckets[prefix >> 52]
            at = bisect_left(bucket, prefix)
            if at == len(bucket) or bucket[at] != prefix:
                bucket.insert(at, prefix)

    def may_hold(self, key: bytes) -> bool:
        prefix = _prefix(key)
        bucket = self._buckets[prefix >> 52]
        at = bisect_left(bucket, prefix)
        return at < len(bucket) and bucket[at] == prefix


def _prefix(key: bytes) -> int:
    """Eight bytes of the id, shifted by what it was claimed for: one id may be claimed for several things."""
    return int.from_bytes(key[1:9], "big") ^ (key[0] * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)


class History:
    """Claims that only the tables remember."""

    RECALLED_MAX = 10_000

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._prefixes = Prefixes()

    async def load(self) -> None:
        async for keys in self._tables.claim_keys():
            self._prefixes.add(keys)

    def must_recall(self, state: State, key: bytes) -> bool:
        """True where memory does not know the key and the tables might."""
        return state.claims.find(key) is None and self._prefixes.may_hold(key)

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
            self._prefixes.add((key,))
            state.claims.recent.pop(key, None)
