"""Reads a whole spool file and reports what is in it: whole, recoverable or damaged, with the missing records.

The verdict is that of recovery (SP-CRASH-002), over all bytes. Nothing is changed and no lock is taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec

from holdfast.spool.files import line_search
from holdfast.spool.files.disk import Disk, Handle, RealDisk
from holdfast.spool.files.line_search import RecordFile
from holdfast.spool.files.names import SessionPaths, parse_file_name
from holdfast.spool.files.ownership import SessionOwner, owner_of
from holdfast.spool.files.record import RECORD_BYTES_MAX
from holdfast.spool.files.record_scanner import InvalidRange, RecordScanner, scan_file
from holdfast.spool.files.recover import FileVerdict, judge
from holdfast.spool.files.segment_log import Segment, list_segments
from holdfast.spool.files.session_markers import Markers, read_markers

CHUNK: Final = 1 << 18
"""Small enough to stay in the processor's cache while it is scanned."""
PARALLEL_BYTES: Final = 64 << 20
"""From this size on a second process saves more time than its start costs."""
PIECE: Final = 16 << 20
"""What a process scans in one call: small enough that both end at about the same time, and progress shows."""
FRESH_S: Final = 10.0
WATCH_S: Final = 0.5
"""A file of v0.1 that was written to within the last seconds is watched for this long."""
OnProgress = Callable[[int, int], None]


class FileReport(msgspec.Struct, kw_only=True):
    """What is in a file."""

    path: Path
    channel: str
    session: str
    verdict: FileVerdict
    records: int = 0
    records_v01: int = 0
    first: int | None = None
    last: int = 0
    """The last valid record, also behind holes."""
    durable_until: int = 0
    acked: int = 0
    size: int = 0
    data_end: int = 0
    invalid_ranges: list[InvalidRange] = []
    invalid_count: int = 0
    missing: list[tuple[int, int]] = []
    records_behind: int = 0
    """Valid records behind the first invalid bytes."""
    not_strict: list[tuple[int, int]] = []
    """Sequence and offset of complete lines of v0.1 that are not strict JSON; the first of them."""
    not_strict_count: int = 0
    is_superseded: bool = False
    """The next segment supersedes its last bytes, which do not count."""
    is_growing: bool = False
    """Somebody wrote to it while it was read, or in a moment after that."""
    owner: SessionOwner = SessionOwner.OURS

    @property
    def first_invalid_byte(self) -> int | None:
        return self.invalid_ranges[0].start if self.invalid_ranges else None


def verify(
    path: Path, disk: Disk | None = None, on_progress: OnProgress = lambda _done, _all: None, processes: int = 2
) -> FileReport:
    """Judge one file. Raises OSError where it cannot be read."""
    disk = disk or RealDisk()
    handle = disk.open(path)
    try:
        named, size = parse_file_name(path.name), disk.size(handle)
        file = _with_ids_of_first_record(
            RecordFile(disk, handle, path.parent.name, named.session if named else ""), size
        )
        end = line_search.end_of_data(disk, handle)
        first = named.number if named else None
        scanner = None
        if processes > 1 and end >= PARALLEL_BYTES and isinstance(disk, RealDisk):
            scanner = _scan_in_parallel(path, file, end, first, on_progress, processes)
        if scanner is None:
            scanner = scan_file(file, 0, end, first=first, chunk_bytes=CHUNK, on_progress=on_progress)
        report = _report(path, file, scanner, end, disk.size(handle), first)
        report.is_growing = _is_growing(disk, handle, size, is_v01=report.records == report.records_v01)
        return report
    finally:
        disk.close(handle)


def _is_growing(disk: Disk, handle: Handle, size: int, *, is_v01: bool) -> bool:
    """SP-OWN-001: whether somebody writes to it. A file of v0.1 has no lock: a fresh one is watched for a moment."""
    if disk.size(handle) != size:
        return True
    if not is_v01 or not isinstance(disk, RealDisk) or time.time() - os.fstat(handle).st_mtime > FRESH_S:
        return False
    until = time.monotonic() + WATCH_S
    while time.monotonic() < until:
        time.sleep(WATCH_S / 20)
        if disk.size(handle) != size:
            return True
    return False


class _RecordIds(msgspec.Struct):
    channel_id: str
    playout_session_id: str


def _with_ids_of_first_record(file: RecordFile, size: int) -> RecordFile:
    """A copy of a file may lie in any folder: its first record has the channel and the session."""
    line = line_search.line_at(file, 0, min(size, CHUNK))
    try:
        ids = msgspec.json.decode(line or b"", type=_RecordIds)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return file
    return RecordFile(file.disk, file.handle, ids.channel_id, ids.playout_session_id)


# ------------------------------------------------------------------------------------------------ in parallel


def _scan_in_parallel(
    path: Path, file: RecordFile, end: int, first: int | None, on_progress: OnProgress, processes: int
) -> RecordScanner | None:
    """Several pieces at once; None where something is invalid: only one scan over all reports that exactly."""
    borders = _piece_borders(file, end)
    pieces = [
        (path, file.channel, file.session, begin, stop, None if begin else first) for begin, stop in pairwise(borders)
    ]
    whole: RecordScanner | None = None
    pool = ProcessPoolExecutor(processes, mp_context=get_context("fork"))
    try:
        for scanner in pool.map(_scan_piece, pieces):
            if whole is not None and not whole.join(scanner):
                return None
            whole = whole or scanner
            on_progress(whole.offset, end)
    finally:
        pool.shutdown(cancel_futures=True)
    return whole


def _piece_borders(file: RecordFile, end: int) -> list[int]:
    """The offsets between the pieces; each is the start of a line."""
    borders = [0]
    for wanted in range(PIECE, end - PIECE // 2, PIECE):
        until = min(end, wanted + RECORD_BYTES_MAX + 1)
        border = line_search.line_start(file, wanted, until)
        if border < until:  # otherwise there is no line here to begin a piece with
            borders.append(border)
    return [*borders, end]


def _scan_piece(job: tuple[Path, str, str, int, int, int | None]) -> RecordScanner:
    path, channel, session, begin, end, first = job
    disk = RealDisk()
    handle = disk.open(path)
    try:
        return scan_file(RecordFile(disk, handle, channel, session), begin, end, first=first, chunk_bytes=CHUNK)
    finally:
        disk.close(handle)


# ------------------------------------------------------------------------------------------------ the verdict


def _report(path: Path, file: RecordFile, scanner: RecordScanner, end: int, size: int, first: int | None) -> FileReport:
    paths = SessionPaths(path.parent, file.channel, file.session)
    markers = read_markers(file.disk, paths)
    acked = markers.acked
    report = FileReport(
        path=path,
        channel=file.channel,
        session=file.session,
        verdict=FileVerdict.WHOLE,
        records=scanner.records,
        records_v01=scanner.records_v01,
        first=scanner.first,
        last=scanner.last or 0,
        durable_until=max(scanner.durable_until, markers.highest, (first or 1) - 1),
        acked=acked,
        size=size,
        data_end=end,
        records_behind=scanner.records - scanner.records_before if scanner.invalid_ranges else 0,
        invalid_ranges=scanner.invalid_ranges,
        invalid_count=scanner.invalid_count,
        missing=[missing for invalid in scanner.invalid_ranges if (missing := _missing(invalid, acked))],
        not_strict=scanner.not_strict,
        not_strict_count=scanner.not_strict_count,
        owner=owner_of(file.disk, paths),
    )
    if first is None and size > end and not scanner.invalid_ranges:
        report.invalid_ranges.append(InvalidRange(end, size, scanner.last, None, "NUL-filled"))
        report.invalid_count = 1
    segments = list_segments(file.disk, paths)
    _judge(report, scanner, _next_first(segments, path), markers, is_first=bool(segments) and segments[0].path == path)
    return report


def _missing(invalid: InvalidRange, acked: int) -> tuple[int, int] | None:
    """At the beginning of a compacted file only what was not acked can be missing."""
    missing = invalid.missing
    if missing is not None and invalid.after is None and missing[0] <= acked < missing[1]:
        return acked + 1, missing[1]
    return missing


def _next_first(segments: list[Segment], path: Path) -> int | None:
    """The first sequence of the session's next file, if there is one."""
    later = [after.first for before, after in pairwise(segments) if before.path == path]
    return later[0] if later else None


def _judge(
    report: FileReport, scanner: RecordScanner, next_first: int | None, markers: Markers, *, is_first: bool
) -> None:
    """SP-CRASH-002, SP-LOSS-001: damage at the beginning, then what the next file or the markers say about the end."""
    number = parse_file_name(report.path.name)
    first = (number.number if number is not None else None) or report.first or 1
    is_start_invalid = bool(report.invalid_ranges) and report.invalid_ranges[0].after is None
    is_begin = is_first or "@" not in report.path.name
    if is_begin and first - 1 > report.acked and not is_start_invalid and not markers.unreadable:
        report.missing.insert(0, (report.acked + 1, first - 1))
        report.verdict = FileVerdict.DAMAGED
        return
    unbroken = (report.invalid_ranges[0].after if report.invalid_ranges else scanner.last) or 0
    if next_first is not None:
        report.is_superseded = unbroken >= next_first - 1 and bool(report.invalid_ranges)
        if unbroken < next_first - 1 and next_first - 1 > report.acked:
            report.verdict = FileVerdict.DAMAGED
            report.missing = report.missing or [(unbroken + 1, next_first - 1)]
        return
    if report.invalid_ranges:
        report.verdict = judge(scanner, unbroken, report.durable_until)
    elif unbroken < markers.highest:
        report.verdict = FileVerdict.DAMAGED
    if report.verdict is FileVerdict.DAMAGED and not report.missing and unbroken < report.durable_until:
        report.missing = [(unbroken + 1, report.durable_until)]
