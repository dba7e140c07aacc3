"""Keys in order, in blocks: adding to a million or taking one away moves a few hundred of them, not all."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import msgspec

BLOCK: Final = 512
"""A block is split when it has grown to twice this."""


class Ranks(msgspec.Struct, gc=False):
    """Bytes in ascending order, each once. An index beside records: it is made again from them."""

    skip: int = 0
    """So many bytes at the beginning do not count: two orders can share their keys."""
    blocks: list[list[bytes]] = []
    """None of them is empty."""

    def add(self, key: bytes) -> None:
        blocks, skip = self.blocks, self.skip
        if not blocks:
            blocks.append([key])
            return
        at = len(blocks) - 1
        if blocks[at][-1][skip:] < key[skip:]:  # mostly: what comes is the youngest
            block = blocks[at]
            block.append(key)
        else:
            part, last = _parts(skip)
            block = blocks[at := bisect_left(blocks, key[skip:], key=last)]
            insort(block, key, key=part)
        if len(block) >= 2 * BLOCK:
            blocks.insert(at + 1, block[BLOCK:])
            del block[BLOCK:]

    def remove(self, key: bytes) -> bool:
        """Take a key away; False where it is not there."""
        at = inside = 0
        if not self.blocks or self.blocks[0][0] != key:  # mostly: what goes is the first
            at, inside = self._find(key)
            if at == len(self.blocks) or self.blocks[at][inside] != key:
                return False
        del self.blocks[at][inside]
        if not self.blocks[at]:
            del self.blocks[at]
        return True

    def before(self, key: bytes) -> int:
        """How many keys come before this one."""
        at, inside = self._find(key)
        return sum(map(len, self.blocks[:at])) + inside

    def _find(self, key: bytes) -> tuple[int, int]:
        part, last = _parts(self.skip)
        counts = key[self.skip :]
        at = bisect_left(self.blocks, counts, key=last)
        return at, bisect_left(self.blocks[at], counts, key=part) if at < len(self.blocks) else 0

    def __iter__(self) -> Iterator[bytes]:
        for block in self.blocks:
            yield from block

    def __len__(self) -> int:
        return sum(map(len, self.blocks))


def ranked(keys: list[bytes], skip: int = 0) -> Ranks:
    """The same from all keys at once: sorted in one go, which is what a start can afford."""
    keys.sort(key=_parts(skip)[0])
    return Ranks(skip, [keys[at : at + BLOCK] for at in range(0, len(keys), BLOCK)])


@lru_cache
def _parts(skip: int) -> tuple[Callable[[bytes], bytes] | None, Callable[[list[bytes]], bytes]]:
    """What counts of a key, None where that is all of it, and what counts of the last key of a block."""
    if not skip:
        return None, itemgetter(-1)
    counts: Any = itemgetter(slice(skip, None))
    return counts, lambda block: block[-1][skip:]
