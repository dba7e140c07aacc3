"""A cache of trees over result bytes: a client that samples a result reads one share after the other (DA-001)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

import msgspec

from holdfast.core.base.values import Digest
from holdfast.lightclient.da.commitment import DaCommitment, Sample, take_sample, tree_of
from holdfast.lightclient.da.nmt import Tree

CACHE_BYTES_MAX: Final = 64 << 20


class CachedTree(msgspec.Struct, frozen=True):
    """Bytes and the tree over them."""

    da_commitment: DaCommitment
    tree: Tree
    raw: bytes

    def sample(self, start: int, count: int) -> Sample:
        return take_sample(self.da_commitment, self.tree, self.raw, start, count)


class NmtCache:
    """The most recently used trees, up to a number of bytes."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Digest, CachedTree] = OrderedDict()

    def find(self, commitment: Digest) -> CachedTree | None:
        """By commitment, which binds bytes and namespace: the same bytes of another caller have another tree."""
        if commitment in self._kept:
            self._kept.move_to_end(commitment)
        return self._kept.get(commitment)

    async def put(self, namespace: bytes, raw: bytes) -> CachedTree:
        """The tree is built in a thread: it takes a few milliseconds a MiB."""
        tree = await asyncio.to_thread(tree_of, namespace, raw)
        commitment = DaCommitment(namespace, tree.root, len(raw))
        cached = self._kept[commitment.digest] = CachedTree(commitment, tree, raw)
        while len(self._kept) > 1 and sum(len(each.raw) for each in self._kept.values()) > self._bytes_max:
            self._kept.popitem(last=False)
        return cached
