"""Finds a place in a file of records without reading it all: halving over lines, whose sequences only grow."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.spool import record
from holdfast.spool.disk import Disk, Handle
from holdfast.spool.record import Seen

BLOCK: Final = 4_096
LINEAR: Final = 16_384
"""Below this many bytes reading on is cheaper than halving again."""
_ZERO_BLOCK: Final = bytes(1 << 18)


class File(msgspec.Struct, frozen=True, gc=False):
    """An open file of one session's records."""

    disk: Disk
    handle: Handle
    channel: str
    session: str


def end_of_data(disk: Disk, handle: Handle) -> int:
    """Behind the last byte that is not zero: where the records of a preallocated file end."""
    end = disk.size(handle)
    while end:
        begin = max(0, end - len(_ZERO_BLOCK))
        block = disk.read(handle, begin, end - begin)
        if block != _ZERO_BLOCK[: len(block)]:
            return begin + len(block.rstrip(b"\0"))
        end = begin
    return 0


def line_start(file: File, offset: int, end: int) -> int:
    """Where the first line begins that starts at or behind `offset`; `end` where none does."""
    if offset == 0:
        return 0
    at = offset - 1
    while at < end:
        block = file.disk.read(file.handle, at, min(BLOCK, end - at))
        found = block.find(b"\n")
        if found >= 0:
            return at + found + 1
        if not block:
            break
        at += len(block)
    return end


def line_at(file: File, start: int, end: int) -> bytes | None:
    """The line that begins there, without its end; None where it has none before `end`."""
    raw, length = b"", BLOCK
    while start + len(raw) < end:
        more = file.disk.read(file.handle, start + len(raw), min(length, end - start - len(raw)))
        found = more.find(b"\n")
        if found >= 0:
            return raw + more[:found]
        if not more:
            break
        raw, length = raw + more, length * 4
    return None


def seen_at(file: File, start: int, end: int) -> Seen | None:
    """The valid record that begins there."""
    line = line_at(file, start, end)
    seen = None if line is None else record.read(line, file.channel, file.session)
    return seen if isinstance(seen, Seen) else None


def find(file: File, sequence: int, end: int) -> int:
    """Where the first valid record with at least this sequence begins; `end` where there is none before it."""
    low, high = 0, end
    while high - low > LINEAR:
        middle = (low + high) // 2
        found = next_valid(file, middle, high, end)
        if found is not None and found[1] < sequence:
            low = found[0]
        else:
            high = middle
    return _read_on(file, low, sequence, end)


def _read_on(file: File, start: int, sequence: int, end: int) -> int:
    """The same line by line, from the beginning of a line."""
    rest, offset = b"", start
    while offset + len(rest) < end:
        more = file.disk.read(file.handle, offset + len(rest), min(LINEAR, end - offset - len(rest)))
        if not more:
            break
        lines, rest = record.lines_in(rest + more)
        for line in lines:
            seen = record.read(line, file.channel, file.session)
            if isinstance(seen, Seen) and seen.sequence >= sequence:
                return offset
            offset += len(line) + 1
    return end


def next_valid(file: File, offset: int, before: int, end: int) -> tuple[int, int] | None:
    """Offset and sequence of the first valid record that begins at or behind `offset` and before `before`."""
    start = line_start(file, offset, end)
    while start < before:
        line = line_at(file, start, end)
        if line is None:
            return None
        seen = record.read(line, file.channel, file.session)
        if isinstance(seen, Seen):
            return start, seen.sequence
        start += len(line) + 1
    return None
