"""Trees over pinned bytes, kept for a while: who samples a result asks for one share after the other (DA-001)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

import msgspec

from holdfast.core.da.commit import Pinned, Sample, take_sample, tree_of
from holdfast.core.da.nmt import Tree
from holdfast.core.values import Digest

BYTES_MAX: Final = 64 << 20


class Shelved(msgspec.Struct, frozen=True):
    """Bytes and the tree over them."""

    pinned: Pinned
    tree: Tree
    raw: bytes

    def sample(self, start: int, count: int) -> Sample:
        return take_sample(self.pinned, self.tree, self.raw, start, count)


class Shelf:
    """The trees asked for last, not too many bytes of them."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Digest, Shelved] = OrderedDict()

    def find(self, commitment: Digest) -> Shelved | None:
        """By what binds bytes and namespace: the same bytes of another caller have another tree."""
        if commitment in self._kept:
            self._kept.move_to_end(commitment)
        return self._kept.get(commitment)

    async def put(self, namespace: bytes, raw: bytes) -> Shelved:
        """The tree is made in a thread: it takes a few milliseconds a MiB."""
        tree = await asyncio.to_thread(tree_of, namespace, raw)
        pinned = Pinned(namespace, tree.root, len(raw))
        made = self._kept[pinned.commitment] = Shelved(pinned, tree, raw)
        while len(self._kept) > 1 and sum(len(each.raw) for each in self._kept.values()) > self._bytes_max:
            self._kept.popitem(last=False)
        return made
