"""The lines that wait for the writer, in memory that was touched before: the emitting thread meets no page fault.

A page fault costs as much as the whole emit. Where a sync hangs, lines pile up in new memory, and every twelfth emit
would meet one. So lines are copied into large blocks, which another thread prepares without holding the interpreter's
lock. A block that was written to disk is used again.

One thread at a time appends, one thread takes. A line's length is published after its bytes, so no lock is needed
between them.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from itertools import repeat
from mmap import mmap
from typing import Final

BLOCK_BYTES: Final = 1 << 20
SPARES: Final = 2
_ZEROS: Final = "/dev/zero"
_popleft: Final = deque[int].popleft


class MemoryBlock:
    """Lines behind each other; a line is never in two blocks."""

    __slots__ = ("data", "end", "size", "taken", "write")

    def __init__(self, data: mmap) -> None:
        data.seek(0)
        self.data, self.size, self.end, self.taken = data, len(data), 0, 0
        self.write = data.write
        """Appends bytes. A bytearray would be copied twice."""


class QueuedLines:
    """Lines that the writer has taken: the first one, and the others as few pieces of memory."""

    __slots__ = ("count", "emptied", "first", "pieces", "size")

    def __init__(self, count: int, first: bytes, pieces: list[memoryview], emptied: list[MemoryBlock]) -> None:
        self.count, self.first, self.pieces, self.emptied = count, first, pieces, emptied
        self.size = len(first) + sum(map(len, pieces))


class LineBuffer:
    """A queue of lines."""

    def __init__(self) -> None:
        self._blocks: deque[MemoryBlock] = deque()
        """Oldest first; the last one is being filled."""
        self._filling: MemoryBlock | None = None
        self.lengths: deque[int] = deque()
        """Of the lines that wait: as many as there are."""
        self._publish = self.lengths.append
        self._spares: deque[mmap] = deque()
        self.needs_spares = self.must_ask = False
        """Blocks should be prepared, by a thread that may wait; and it was not asked for them yet."""

    @property
    def next_bytes(self) -> int:
        """The length of the next line; 0 where none waits."""
        return self.lengths[0] if self.lengths else 0

    def append(self, line: bytes) -> None:
        block, length = self._filling, len(line)
        if block is None or block.end + length > block.size:
            block = self._next_block(length)
        block.write(line)
        block.end += length
        self._publish(length)

    def _next_block(self, length: int) -> MemoryBlock:
        self.needs_spares = self.must_ask = True
        is_spare_enough = bool(self._spares) and length <= BLOCK_BYTES
        data = self._spares.popleft() if is_spare_enough else mmap(-1, max(BLOCK_BYTES, length))
        self._filling = block = MemoryBlock(data)
        self._blocks.append(block)
        return block

    # -------------------------------------------------------------------------------------------- for the other threads

    def take(self, bytes_max: int | None) -> QueuedLines | None:
        """The oldest lines, as many as fit, at least one; None where there is none. Without a limit: all."""
        count = len(self.lengths)
        if not count:
            return None
        if bytes_max is None:
            lengths = list(map(_popleft, repeat(self.lengths, count)))
        else:
            lengths = [self.lengths.popleft()]
            total = lengths[0]
            while self.lengths and total + self.lengths[0] <= bytes_max:
                total += self.lengths[0]
                lengths.append(self.lengths.popleft())
        emptied: list[MemoryBlock] = []
        (first,) = self._pieces(lengths[0], emptied)
        return QueuedLines(len(lengths), bytes(first), self._pieces(sum(lengths[1:]), emptied), emptied)

    def _pieces(self, size: int, emptied: list[MemoryBlock]) -> list[memoryview]:
        """The next `size` bytes, which are whole lines."""
        pieces = []
        while size:
            block = self._blocks[0]
            length = min(size, block.end - block.taken)
            if not length:  # the lines go on in the next block
                emptied.append(self._blocks.popleft())
                continue
            pieces.append(memoryview(block.data)[block.taken : block.taken + length])
            block.taken += length
            size -= length
        return pieces

    def reuse(self, lines: QueuedLines) -> None:
        """The lines are written: their memory may be used again."""
        for piece in lines.pieces:
            piece.release()
        for block in lines.emptied:
            if block.size == BLOCK_BYTES and len(self._spares) < SPARES:
                self._spares.append(block.data)

    def prepare_spares(self) -> None:
        """Have blocks ready whose pages exist: the kernel writes to them while other threads run."""
        self.needs_spares = False
        with suppress(OSError):
            zeros = os.open(_ZEROS, os.O_RDONLY | os.O_CLOEXEC)
            try:
                while len(self._spares) < SPARES:
                    data = mmap(-1, BLOCK_BYTES)
                    os.readv(zeros, [data])
                    self._spares.append(data)
            finally:
                os.close(zeros)
