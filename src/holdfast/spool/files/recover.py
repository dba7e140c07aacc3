"""Recovery of a session's last file after a crash: its tail is read from the end, judged and repaired (SP-CRASH-002).

Everything up to the highest `durable` field, and up to the markers, was synced. What lies above may be torn: it is
quarantined, and the file continues behind its last valid record. Invalid bytes below are damage: nothing is changed. So
it is enough to read back from the end until a `durable` field covers what comes before: the time to open does not grow
with the file.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
from crc32c import crc32c

from holdfast.spool.files import line_search, record
from holdfast.spool.files.atomic_files import check_unchanged, remove_file, replace_file
from holdfast.spool.files.disk import Disk, Handle
from holdfast.spool.files.line_search import RecordFile
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.files.record import RecordSummary
from holdfast.spool.files.record_scanner import InvalidRange, RecordScanner, scan_file

WINDOW: Final = 1 << 18
"""How much is read in any case, from the end."""
CHUNK: Final = 1 << 20


class FileVerdict(StrEnum):
    """The state of a file."""

    WHOLE = "whole"
    TORN = "recoverable"
    DAMAGED = "damaged"


class Tail(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The end of a file."""

    verdict: FileVerdict
    last: int
    """The last record of the unbroken run; where there is none, the one before the first that its name gives."""
    end: int
    """The offset behind that record."""
    data_end: int
    """The offset behind the last byte that is not padding."""
    size: int
    durable_until: int
    """Everything up to here was synced: by a marker, by a `durable` field, or by the segment's name."""
    invalid: InvalidRange | None
    last_record: RecordSummary | None
    """The record `last`."""
    last_valid: int
    """The last valid record, also behind damage."""


def inspect_tail(file: RecordFile, *, first: int | None, marked: int, window: int = WINDOW) -> Tail:
    """Judge the end of a file. `first` is the sequence in a segment's name, None for a plain file.

    `marked` is the highest sequence of the session's markers, which are durable, too (SP-LOSS-001).
    """
    data_end, size = line_search.end_of_data(file.disk, file.handle), file.disk.size(file.handle)
    before_first = 0 if first is None else first - 1
    while True:
        begin = line_search.line_start(file, max(0, data_end - window), data_end)
        if begin == data_end > 0:  # no line begins in the window
            window *= 4
            continue
        scanner = scan_file(file, begin, data_end, first=first if begin == 0 else None, chunk_bytes=CHUNK)
        if first is None and size > data_end:
            _add_padding(scanner, size)
        durable_until = max(marked, before_first, scanner.durable_until)
        if begin == 0 or _is_window_enough(scanner, durable_until):
            return _judge_tail(file, scanner, data_end, size, durable_until, before_first)
        window *= 4


def _add_padding(scanner: RecordScanner, size: int) -> None:
    """Zeros at the end of a plain file are not padding: a crash extended the file, and its bytes were not written."""
    if scanner.invalid_ranges and scanner.invalid_ranges[-1].before is None:
        scanner.invalid_ranges[-1].stop = size
    else:
        scanner.invalid_ranges.append(InvalidRange(scanner.offset, size, scanner.last, None, "NUL-filled"))
        scanner.invalid_count += 1


def _is_window_enough(scanner: RecordScanner, durable_until: int) -> bool:
    """The window begins with a valid record, and what comes before was durable, or no record has a `durable` field."""
    if scanner.first is None or (scanner.invalid_ranges and scanner.invalid_ranges[0].after is None):
        return False
    return scanner.first <= durable_until + 1 or scanner.records == scanner.records_v01


def judge(scanner: RecordScanner, last: int, durable_until: int) -> FileVerdict:
    """The verdict over a scan with invalid bytes, `last` being the last record before them.

    Records of v0.1 have no `durable` field: in a file of only these, a last line without its end is a torn tail.
    Complete lines are not: two records may be merged in one.
    """
    if last + 1 <= durable_until:
        return FileVerdict.DAMAGED
    is_v01 = bool(scanner.records) and scanner.records == scanner.records_v01
    is_kept = scanner.has_valid_behind or scanner.invalid_ranges[0].has_lines
    return FileVerdict.DAMAGED if is_v01 and is_kept else FileVerdict.TORN


def _judge_tail(
    file: RecordFile, scanner: RecordScanner, data_end: int, size: int, durable_until: int, before_first: int
) -> Tail:
    invalid = scanner.invalid_ranges[0] if scanner.invalid_ranges else None
    reached = scanner.last if invalid is None else invalid.after
    last = before_first if reached is None else reached
    parsed = record.parse(scanner.last_line, file.channel, file.session) if scanner.last_line else None
    return Tail(
        verdict=FileVerdict.WHOLE if invalid is None else judge(scanner, last, durable_until),
        last=last,
        end=data_end if invalid is None else invalid.start,
        data_end=data_end,
        size=size,
        durable_until=durable_until,
        invalid=invalid,
        last_record=parsed if isinstance(parsed, RecordSummary) else None,
        last_valid=max(last, scanner.last or 0),
    )


# ------------------------------------------------------------------------------------------------ repair


def quarantine(disk: Disk, handle: Handle, path: Path, paths: SessionPaths, tail: Tail) -> int:
    """Move the bytes behind the last valid record of `path` into a quarantine file; how many lines they were.

    The copy is durable before the file is truncated. After a crash in between both are done again, into a file of the
    same name; the first copy is removed before, since the cap has no room for three.
    """
    raw = disk.read(handle, tail.end, tail.data_end - tail.end)
    if raw.strip(b"\0"):
        copy = paths.quarantine(tail.last + 1, crc32c(raw))
        remove_file(disk, copy)
        replace_file(disk, copy, raw)
    check_unchanged(disk, handle, path, tail.size)
    disk.truncate(handle, tail.end)
    disk.sync(handle)
    return max(1, len(raw.split(b"\n")) - raw.endswith(b"\n"))


def rewrite_unsynced(file: RecordFile, tail: Tail) -> None:
    """Write the records that no `durable` field covers again, the same bytes at the same offset, and sync.

    They may be on the medium or only in the page cache. If an earlier sync failed, the next one may succeed without
    writing them. Only bytes that are written again are certain to be synced (SP-CRASH-003).
    """
    if tail.last > tail.durable_until:
        begin = line_search.find_sequence(file, tail.durable_until + 1, tail.end)
        for offset in range(begin, tail.end, CHUNK):
            file.disk.write(file.handle, offset, file.disk.read(file.handle, offset, min(CHUNK, tail.end - offset)))
    file.disk.sync(file.handle)
