"""Jobs of many groups in one order: chunks of all groups are sorted together, as far as no later key can come before.

A heap would compare every job; a sort detects the runs and mostly copies. A group's chunk doubles whenever it was used
up, so that a few jobs of a thousand groups and a hundred thousand jobs of one group are both cheap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import repeat
from typing import Final, Generic, Protocol, TypeVar

from holdfast.core.index.sorted_keys import SortedKeys


class MergeGroup(Protocol):
    """The group that keys belong to."""

    is_done: bool
    """No more keys of it are needed: it is left out from the next run on."""


T = TypeVar("T", bound=MergeGroup)
FIRST_CHUNK_KEYS: Final = 8
"""The size of a group's first chunk."""


class BatchedMerge(Generic[T]):
    """Iterates over runs of keys in order; `owner` has the group of each key of the current run."""

    def __init__(self, groups: list[tuple[SortedKeys, T]]) -> None:
        self._cursors = [_GroupCursor(keys.blocks, group) for keys, group in groups if keys.blocks]
        self.owner: dict[bytes, T] = {}

    def __iter__(self) -> Iterator[list[bytes]]:
        while self._cursors:
            self.owner = {}
            ends = [cursor.chunk[-1] for cursor in self._cursors if cursor.has_more]
            end = min(ends) if ends else None
            run: list[bytes] = []
            for cursor in self._cursors:
                keys = cursor.take_until(end)
                run += keys
                self.owner.update(zip(keys, repeat(cursor.group)))
            run.sort()
            yield run
            self._cursors = [cursor for cursor in self._cursors if cursor.chunk and not cursor.group.is_done]


class _GroupCursor(Generic[T]):
    """The keys of one group, a chunk at a time."""

    __slots__ = ("_at", "_block", "_blocks", "_size", "chunk", "group", "has_more")

    def __init__(self, blocks: list[list[bytes]], group: T) -> None:
        self._blocks, self._block, self._at, self._size, self.group = blocks, 0, 0, FIRST_CHUNK_KEYS, group
        self.chunk: list[bytes] = []
        self.has_more = True
        self._fill()

    def take_until(self, end: bytes | None) -> list[bytes]:
        """Remove and return the keys of the chunk up to `end`; None: all of them."""
        chunk = self.chunk
        cut = len(chunk) if end is None else bisect_right(chunk, end)
        if cut < len(chunk):
            self.chunk = chunk[cut:]
            return chunk[:cut]
        self._size *= 2
        self._fill()
        return chunk

    def _fill(self) -> None:
        """Load the next chunk; it is from one block, so that it is a slice."""
        if self._block == len(self._blocks):
            self.chunk, self.has_more = [], False
            return
        block = self._blocks[self._block]
        self.chunk = block[self._at : self._at + self._size]
        self._at += len(self.chunk)
        if self._at == len(block):
            self._block, self._at = self._block + 1, 0
        self.has_more = self._block < len(self._blocks)
