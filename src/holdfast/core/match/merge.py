"""Jobs of many groups in one order: pieces of each are sorted together, as far as no other group can come before.

A heap would look at every job; a sort finds the runs and mostly copies. A group's piece doubles when it was all used,
so that a few jobs of a thousand groups and a hundred thousand of one both cost what they must.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import repeat
from typing import Final, Generic, Protocol, TypeVar

from holdfast.core.ranks import Ranks


class Group(Protocol):
    """Whose keys they are."""

    is_done: bool
    """Nothing more of it is wanted: it is left out from the next lot on."""


T = TypeVar("T", bound=Group)
PIECE: Final = 8
"""How much of a group is looked at first."""


class Merged(Generic[T]):
    """Iterates over lots of keys in order; `owner` says whose each key of the lot at hand is."""

    def __init__(self, ranks: list[tuple[Ranks, T]]) -> None:
        self._streams = [_Stream(each.blocks, whose) for each, whose in ranks if each.blocks]
        self.owner: dict[bytes, T] = {}

    def __iter__(self) -> Iterator[list[bytes]]:
        while self._streams:
            self.owner = {}
            ends = [stream.piece[-1] for stream in self._streams if stream.has_more]
            end = min(ends) if ends else None
            lot: list[bytes] = []
            for stream in self._streams:
                some = stream.upto(end)
                lot += some
                self.owner.update(zip(some, repeat(stream.whose)))
            lot.sort()
            yield lot
            self._streams = [stream for stream in self._streams if stream.piece and not stream.whose.is_done]


class _Stream(Generic[T]):
    """The keys of one group, a piece at a time."""

    __slots__ = ("_at", "_block", "_blocks", "_size", "has_more", "piece", "whose")

    def __init__(self, blocks: list[list[bytes]], whose: T) -> None:
        self._blocks, self._block, self._at, self._size, self.whose = blocks, 0, 0, PIECE, whose
        self.piece: list[bytes] = []
        self.has_more = True
        self._fill()

    def upto(self, end: bytes | None) -> list[bytes]:
        """What of the piece is not beyond `end`, which is then over; None is all of it."""
        piece = self.piece
        cut = len(piece) if end is None else bisect_right(piece, end)
        if cut < len(piece):
            self.piece = piece[cut:]
            return piece[:cut]
        self._size *= 2
        self._fill()
        return piece

    def _fill(self) -> None:
        """The next piece; of one block, so that it is a slice."""
        if self._block == len(self._blocks):
            self.piece, self.has_more = [], False
            return
        block = self._blocks[self._block]
        self.piece = block[self._at : self._at + self._size]
        self._at += len(self.piece)
        if self._at == len(block):
            self._block, self._at = self._block + 1, 0
        self.has_more = self._block < len(self._blocks)
