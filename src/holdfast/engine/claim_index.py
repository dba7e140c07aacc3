"""Whether an id was claimed before the last checkpoint (ENG-005): a filter of key prefixes, and a lookup on a hit."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.base.event import Batch, JournalHead
from holdfast.core.base.values import BatchNo
from holdfast.core.index.unique_ids import claim_number
from holdfast.core.state import State
from holdfast.ports import Tables

BUCKETS: Final = 4096
ENTRY_MASK: Final = 0xFFFF_FFFF
CLAIMS_PER_BATCH: Final = 1_024
"""How many stored claims memory drops at each batch, in addition to twice the batch's events."""
NEVER_ASKED: Final = ord("j")
"""Ids of jobs: no decision depends on them, and whoever reads a job by its id asks the tables."""


class PrefixFilter:
    """Four bytes per key instead of a hundred: calls nearly all new keys new, and never an old one.

    The prefixes are in sorted buckets, which are cheap to add to and quicker to sort than one long list. The bucket is
    12 bits of a prefix, the entry 32 more: of a million new keys, six are looked up among 10⁸ in vain.
    """

    def __init__(self) -> None:
        self._buckets = [array("I") for _ in range(BUCKETS)]

    def load(self, chunks: Iterable[Sequence[int]]) -> None:
        """Add all keys that the tables hold at the start."""
        buckets = self._buckets
        for keys in chunks:
            for prefix in keys:
                buckets[prefix % BUCKETS].append(prefix // BUCKETS & ENTRY_MASK)
        self._buckets = [array("I", sorted(bucket)) for bucket in buckets]

    def add(self, key: bytes) -> None:
        prefix = claim_number(key)
        insort(self._buckets[prefix % BUCKETS], prefix // BUCKETS & ENTRY_MASK)

    def may_contain(self, key: bytes) -> bool:
        prefix = claim_number(key)
        bucket, entry = self._buckets[prefix % BUCKETS], prefix // BUCKETS & ENTRY_MASK
        at = bisect_left(bucket, entry)
        return at < len(bucket) and bucket[at] == entry

    def size_bytes(self) -> int:
        """What the entries take."""
        return sum(len(bucket) * bucket.itemsize for bucket in self._buckets)


class ClaimIndex:
    """Claims that only the tables hold."""

    LOADED_MAX = 10_000

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.prefixes = PrefixFilter()
        self._dropped_until = BatchNo(0)
        """Memory has dropped claims of batches up to this one."""
        self._older_until = BatchNo(0)
        """The last batch that the older claims in memory can be of."""

    async def load_filter(self) -> None:
        self.prefixes.load([keys async for keys in self._tables.claim_keys()])

    def may_contain(self, key: bytes) -> bool:
        """Whether the tables might have the key; what memory has dropped since is here, too."""
        return self.prefixes.may_contain(key)

    async def load(self, state: State, keys: Sequence[bytes]) -> BatchNo:
        """Load old claims into memory, so that the decision sees them; another key may have the same prefix.

        Returns the batch as of which the others are absent: that counts only while the answer `covers` everything that
        memory has dropped, and it is not kept.
        """
        while True:
            claims, checkpoint = await self._tables.find_claims(keys)
            if len(state.claims.loaded) >= self.LOADED_MAX:
                state.claims.loaded.clear()
            state.claims.loaded |= claims
            if len(claims) == len(keys) or self.covers(checkpoint.number):
                return checkpoint.number

    def covers(self, checkpoint: int) -> bool:
        """Whether the tables as of this batch have every claim that memory has dropped."""
        return checkpoint >= self._dropped_until

    def drop_some(self, state: State, checkpoint: JournalHead, confirmed: Batch) -> None:
        """A little at each batch that is confirmed; nothing in memory is above the batch that is being filled."""
        limit = CLAIMS_PER_BATCH + 2 * (confirmed.last - confirmed.first + 1)
        self.drop_stored(state, checkpoint, BatchNo(confirmed.number + 1), limit)

    def drop_stored(self, state: State, checkpoint: JournalHead, newest: BatchNo, limit: int) -> None:
        """Drop up to `limit` claims that the tables hold by now: their prefixes suffice in memory.

        The claims of some time leave together: those of now become the older ones when the older ones are gone. No
        claim in memory is of a batch above `newest`.
        """
        claims = state.claims
        if claims.older and checkpoint.number >= self._older_until:
            self._dropped_until = self._older_until
            for _ in range(min(limit, len(claims.older))):
                key, _ = claims.older.popitem()
                if key[0] != NEVER_ASKED:
                    self.prefixes.add(key)
        if not claims.older:
            claims.older, claims.recent, self._older_until = claims.recent, {}, newest
