"""Whether an id was claimed before the last checkpoint (ENG-005): a set of key prefixes, and a lookup on a hit."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from holdfast.core.state import State
from holdfast.ports import Tables


class Prefixes:
    """Eight bytes per key instead of a hundred: says "certainly new" for nearly all new keys, never for an old one.

    What was there at the start is one sorted array; what came since is in small sorted buckets, cheap to add to.
    """

    def __init__(self) -> None:
        self._base = array("Q")
        self._buckets = [array("Q") for _ in range(4096)]

    def load(self, lots: Iterable[Sequence[bytes]]) -> None:
        """Take all keys that are there at the start."""
        self._base = array("Q", sorted(prefix_of(key) for keys in lots for key in keys))

    def add(self, key: bytes) -> None:
        prefix = prefix_of(key)
        insort(self._buckets[prefix & 4095], prefix)

    def may_hold(self, key: bytes) -> bool:
        prefix = prefix_of(key)
        return _holds(self._buckets[prefix & 4095], prefix) or _holds(self._base, prefix)


def prefix_of(key: bytes) -> int:
    """Both ends of a key, so that ids which count up, from either end, are told apart like hashes are."""
    return int.from_bytes(key[:8], "big") ^ int.from_bytes(key[-8:], "big")


def _holds(numbers: array[int], number: int) -> bool:
    at = bisect_left(numbers, number)
    return at < len(numbers) and numbers[at] == number


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
