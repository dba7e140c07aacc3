"""Finds an offset in a file of records without reading it all: binary search over lines, whose sequences only grow."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.spool.files import record
from holdfast.spool.files.disk import Disk, Handle
from holdfast.spool.files.record import RecordSummary

BLOCK: Final = 4_096
LINEAR: Final = 16_384
"""Below this many bytes reading is cheaper than searching on."""
_ZERO_BLOCK: Final = bytes(1 << 18)


class RecordFile(msgspec.Struct, frozen=True, gc=False):
    """An open file of one session's records."""

    disk: Disk
    handle: Handle
    channel: str
    session: str


def end_of_data(disk: Disk, handle: Handle) -> int:
    """The offset behind the last byte that is not zero: where the records of a preallocated file end."""
    end = disk.size(handle)
    while end:
        begin = max(0, end - len(_ZERO_BLOCK))
        block = disk.read(handle, begin, end - begin)
        if block != _ZERO_BLOCK[: len(block)]:
            return begin + len(block.rstrip(b"\0"))
        end = begin
    return 0


def line_start(file: RecordFile, offset: int, end: int) -> int:
    """The start of the first line that begins at or behind `offset`; `end` where none does."""
    if offset == 0:
        return 0
    at = offset - 1
    while at < end:
        block = file.disk.read(file.handle, at, min(BLOCK, end - at))
        line_end = block.find(b"\n")
        if line_end >= 0:
            return at + line_end + 1
        if not block:
            break
        at += len(block)
    return end


def line_at(file: RecordFile, start: int, end: int) -> bytes | None:
    """The line that begins at `start`, without its end; None where it does not end before `end`."""
    raw, length = b"", BLOCK
    while start + len(raw) < end:
        more = file.disk.read(file.handle, start + len(raw), min(length, end - start - len(raw)))
        line_end = more.find(b"\n")
        if line_end >= 0:
            return raw + more[:line_end]
        if not more:
            break
        raw, length = raw + more, length * 4
    return None


def record_at(file: RecordFile, start: int, end: int) -> RecordSummary | None:
    """The valid record that begins at `start`."""
    line = line_at(file, start, end)
    seen = None if line is None else record.parse(line, file.channel, file.session)
    return seen if isinstance(seen, RecordSummary) else None


def find_sequence(file: RecordFile, sequence: int, end: int) -> int:
    """The start of the first valid record with at least this sequence; `end` where there is none before it."""
    low, high = 0, end
    while high - low > LINEAR:
        middle = (low + high) // 2
        valid = find_valid(file, middle, high, end)
        if valid is not None and valid[1] < sequence:
            low = valid[0]
        else:
            high = middle
    return _scan_from(file, low, sequence, end)


def _scan_from(file: RecordFile, start: int, sequence: int, end: int) -> int:
    """`find_sequence` line by line; `start` is the beginning of a line."""
    rest, offset = b"", start
    while offset + len(rest) < end:
        more = file.disk.read(file.handle, offset + len(rest), min(LINEAR, end - offset - len(rest)))
        if not more:
            break
        lines, rest = record.split_lines(rest + more)
        for line in lines:
            seen = record.parse(line, file.channel, file.session)
            if isinstance(seen, RecordSummary) and seen.sequence >= sequence:
                return offset
            offset += len(line) + 1
    return end


def find_valid(file: RecordFile, offset: int, before: int, end: int) -> tuple[int, int] | None:
    """Offset and sequence of the first valid record that begins at or behind `offset` and before `before`."""
    start = line_start(file, offset, end)
    while start < before:
        line = line_at(file, start, end)
        if line is None:
            return None
        seen = record.parse(line, file.channel, file.session)
        if isinstance(seen, RecordSummary):
            return start, seen.sequence
        start += len(line) + 1
    return None
