"""Keys in ascending order, in blocks: adding or removing one of a million moves a few hundred keys, not all."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import msgspec

BLOCK_KEYS: Final = 512
"""A block is split when it has grown to twice this."""
MERGE_MAX: Final = 16
"""Keys are merged with as many times more; among still more they are added one by one."""


class SortedKeys(msgspec.Struct, gc=False):
    """Bytes in ascending order, each once. An index beside the records: it can always be rebuilt from them."""

    skip: int = 0
    """This many leading bytes are ignored: two orders can share their keys."""
    blocks: list[list[bytes]] = []
    """None of them is empty."""

    def add(self, key: bytes) -> None:
        blocks, skip = self.blocks, self.skip
        if not blocks:
            blocks.append([key])
            return
        at = len(blocks) - 1
        if blocks[at][-1][skip:] < key[skip:]:  # the usual case: the new key is the last
            block = blocks[at]
            block.append(key)
        else:
            part, last = _sort_keys(skip)
            block = blocks[at := bisect_left(blocks, key[skip:], key=last)]
            insort(block, key, key=part)
        if len(block) >= 2 * BLOCK_KEYS:
            blocks.insert(at + 1, block[BLOCK_KEYS:])
            del block[BLOCK_KEYS:]

    def add_many(self, keys: list[bytes]) -> None:
        """Add keys, which are sorted for it: they are merged with the blocks from the first of them on."""
        if len(keys) < 2:
            for key in keys:
                self.add(key)
            return
        blocks, (part, last) = self.blocks, _sort_keys(self.skip)
        keys.sort(key=part)
        at = min(bisect_left(blocks, keys[0][self.skip :], key=last), max(0, len(blocks) - 1))
        after = blocks[at:]
        if sum(map(len, after)) > MERGE_MAX * len(keys):
            for key in keys:
                self.add(key)
            return
        merged = list(chain(*after, keys))
        merged.sort(key=part)  # two sorted parts: it only compares and copies
        blocks[at:] = [merged[at : at + BLOCK_KEYS] for at in range(0, len(merged), BLOCK_KEYS)]

    def remove_many(self, keys: Iterable[bytes]) -> set[bytes]:
        """Remove keys, and return those that are not there; in the usual case they are the first ones."""
        left, blocks = set(keys), self.blocks
        while blocks and len(left) * 8 > len(blocks[0]):  # fewer are quicker found one by one
            kept = [key for key in blocks[0] if key not in left]
            if len(kept) == len(blocks[0]):
                break
            left.difference_update(blocks[0])
            if kept:
                blocks[0] = kept
                break
            del blocks[0]
        return {key for key in left if not self.remove(key)}

    def remove(self, key: bytes) -> bool:
        """Remove a key; False where it is not there."""
        at = inside = 0
        if not self.blocks or self.blocks[0][0] != key:  # the usual case: the removed key is the first
            at, inside = self._find(key)
            if at == len(self.blocks) or self.blocks[at][inside] != key:
                return False
        del self.blocks[at][inside]
        if not self.blocks[at]:
            del self.blocks[at]
        return True

    def rank(self, key: bytes) -> int:
        """How many keys come before this one."""
        at, inside = self._find(key)
        return sum(map(len, self.blocks[:at])) + inside

    def _find(self, key: bytes) -> tuple[int, int]:
        part, last = _sort_keys(self.skip)
        compared = key[self.skip :]
        at = bisect_left(self.blocks, compared, key=last)
        return at, bisect_left(self.blocks[at], compared, key=part) if at < len(self.blocks) else 0

    def __iter__(self) -> Iterator[bytes]:
        for block in self.blocks:
            yield from block

    def __len__(self) -> int:
        return sum(map(len, self.blocks))


def from_sorted(keys: list[bytes], skip: int = 0) -> SortedKeys:
    """Built at once from keys that are in order already."""
    return SortedKeys(skip, [keys[at : at + BLOCK_KEYS] for at in range(0, len(keys), BLOCK_KEYS)])


@lru_cache
def _sort_keys(skip: int) -> tuple[Callable[[bytes], bytes] | None, Callable[[list[bytes]], bytes]]:
    """The part of a key that is compared (None: all of it), and that part of the last key of a block."""
    if not skip:
        return None, itemgetter(-1)
    compared: Any = itemgetter(slice(skip, None))
    return compared, lambda block: block[-1][skip:]
