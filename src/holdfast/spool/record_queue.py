"""The records that wait for the writer, in memory that was touched before: the emitting thread meets no page fault.

A page fault costs as much as the whole emit. Where a sync hangs, records pile up in new memory, and many an emit would
meet one. So their bytes are copied into large blocks, which another thread prepares without holding the interpreter's
lock. A block that was emptied is used again. Nothing that waits is a Python object: the garbage collector has no more
to look at, however much waits.

One thread at a time appends, one thread takes. The taker makes the lines: numbering is all that the emitting thread
does for them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from mmap import mmap
from struct import Struct
from typing import Final

from holdfast.core.base.values import U64_MAX
from holdfast.spool.files.record import Encoder, durable_field, seal_lines

BLOCK_BYTES: Final = 1 << 20
SPARES: Final = 2
PIECE_LINES: Final = 512
PIECE_BYTES: Final = 256 << 10
"""The writer makes and writes so much at a time. Writing lets the other threads run: making all that a hang has piled
up would stop them for many milliseconds."""
_SEQUENCE_BYTES_MAX: Final = len(str(U64_MAX))
_ZEROS: Final = "/dev/zero"
_HEADER: Final = Struct("=qII")
"""Before each record: its time, the length of its payload, that of its type. The type is there if it is another one
than that of the record before it in the block."""
_pack, _unpack, _HEADER_BYTES = _HEADER.pack, _HEADER.unpack_from, _HEADER.size


class MemoryBlock:
    """Records behind each other; a record is never in two blocks."""

    __slots__ = ("data", "end", "kind", "size", "taken", "taken_kind", "taken_kind_bytes", "write")

    def __init__(self, data: mmap) -> None:
        data.seek(0)
        self.data, self.size, self.end, self.taken = data, len(data), 0, 0
        self.kind, self.taken_kind, self.taken_kind_bytes = b"", "", 0
        """The type of the last record that was appended, and of the last one that was taken."""
        self.write = data.write
        """Appends bytes. A bytearray would be copied twice."""


class QueuedLines:
    """What one commit writes: lines in pieces, each made when it is asked for, and kept until they are durable."""

    def __init__(self, queue: RecordQueue, count: int, bytes_max: int, durable: int) -> None:
        self._queue, self._left, self._room, self._durable = queue, count, bytes_max, durable
        self._pieces: list[bytes] = []
        self.count = self.size_max = 0
        """How many lines there are, and how much was accepted for them: both grow until all pieces were made."""

    def __iter__(self) -> Iterator[bytes]:
        """The pieces, also a second time, where the first file has failed."""
        yield from self._pieces
        while (piece := self._make()) is not None:
            self._pieces.append(piece)
            yield piece

    def _make(self) -> bytes | None:
        """The next piece; None at the end: what is left waits for the next commit."""
        bodies, size = self._queue.take(min(self._left, PIECE_LINES), self._room, is_first=not self.count)
        if not bodies:
            return None
        if not self.count:
            bodies[0] += durable_field(self._durable)
        self.count += len(bodies)
        self.size_max += size
        self._left, self._room = self._left - len(bodies), self._room - size
        return seal_lines(bodies)


class RecordQueue:
    """A queue of numbered records."""

    def __init__(self, encoder: Encoder, last: int) -> None:
        self._encoder, self._line_bytes = encoder, encoder.line_bytes_max
        self._blocks: deque[MemoryBlock] = deque()
        """Oldest first; the last one is being filled."""
        self._filling: MemoryBlock | None = None
        self.next = last + 1
        """The sequence of the next record that will be taken."""
        self._spares: deque[mmap] = deque()
        self.needs_spares = self.must_ask = False
        """Blocks should be prepared, by a thread that may wait; and it was not asked for them yet."""

    def append(self, now_ms: int, kind: bytes, payload: bytes) -> None:
        """A record; its type and payload are JSON. It counts when the emitter has counted its sequence."""
        block, size = self._filling, _HEADER_BYTES + len(kind) + len(payload)
        if block is None or block.end + size > block.size:
            block = self._next_block(size)
        if kind is block.kind:
            size -= len(kind)
            block.write(_pack(now_ms, len(payload), 0) + payload)
        else:
            block.kind = kind
            block.write(_pack(now_ms, len(payload), len(kind)) + kind + payload)
        block.end += size

    def _next_block(self, size: int) -> MemoryBlock:
        self.needs_spares = self.must_ask = True
        is_spare_enough = bool(self._spares) and size <= BLOCK_BYTES
        data = self._spares.popleft() if is_spare_enough else mmap(-1, max(BLOCK_BYTES, size))
        self._filling = block = MemoryBlock(data)
        self._blocks.append(block)
        return block

    # -------------------------------------------------------------------------------------------- for the other threads

    def take(self, count: int, bytes_max: int, *, is_first: bool) -> tuple[list[bytes], int]:
        """The oldest records without their CRC, as many as fit, and how much was accepted for their lines.

        The first one of a commit always fits.
        """
        bodies: list[bytes] = []
        spare = _SEQUENCE_BYTES_MAX - len(str(self.next + count))
        taken, at, end, body, overhead = 0, 0, 0, self._encoder.body, self._line_bytes - spare
        for sequence in range(self.next, self.next + count):
            if at == end:
                block = self._oldest()
                data, at, end = block.data, block.taken, block.end
            now_ms, payload_bytes, kind_bytes = _unpack(data, at)
            size = overhead + payload_bytes + (kind_bytes or block.taken_kind_bytes)
            if taken + size > bytes_max and (bodies or not is_first):
                break
            at += _HEADER_BYTES
            if kind_bytes:
                block.taken_kind, block.taken_kind_bytes = data[at : at + kind_bytes].decode(), kind_bytes
                at += kind_bytes
            bodies.append(body(sequence, now_ms, block.taken_kind, data[at : at + payload_bytes]))
            block.taken = at = at + payload_bytes
            taken += size
            if taken > PIECE_BYTES:
                break
        self.next += len(bodies)
        return bodies, taken + len(bodies) * spare

    def next_bytes(self) -> int:
        """The size at most of the next line; there is one."""
        block = self._oldest()
        lengths: tuple[int, int, int] = _unpack(block.data, block.taken)
        _, payload_bytes, kind_bytes = lengths
        spare = _SEQUENCE_BYTES_MAX - len(str(self.next))
        return self._line_bytes - spare + payload_bytes + (kind_bytes or block.taken_kind_bytes)

    def _oldest(self) -> MemoryBlock:
        """The block with the next record; one that was emptied may be used again."""
        block = self._blocks[0]
        while block.taken == block.end:  # the records go on in the next block
            self._blocks.popleft()
            if block.size == BLOCK_BYTES and len(self._spares) < SPARES:
                self._spares.append(block.data)
            block = self._blocks[0]
        return block

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
