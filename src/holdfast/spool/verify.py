"""Reads a whole spool file and says what is in it: whole, recoverable or damaged, with the missing records by range.

A verdict is that of recovery (SP-CRASH-002), but over all bytes. Nothing is changed, no lock is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec

from holdfast.spool import seek
from holdfast.spool.disk import Disk, RealDisk
from holdfast.spool.log import segments_of
from holdfast.spool.names import Place, parse
from holdfast.spool.record import RECORD_BYTES_MAX
from holdfast.spool.recover import Verdict
from holdfast.spool.seek import File
from holdfast.spool.walk import Bad, Walk
from holdfast.spool.whole import read_ack

CHUNK: Final = 1 << 18
"""Small enough to stay in the processor's cache while it is looked at from several sides."""
PARALLEL_BYTES: Final = 64 << 20
"""From here on a second process is worth its start."""
PIECE: Final = 16 << 20
"""What a process looks at in one go: small enough that both end at about the same time, and progress is seen."""
Told = Callable[[int, int], None]


class Report(msgspec.Struct, kw_only=True):
    """What a file holds."""

    path: Path
    channel: str
    session: str
    verdict: Verdict
    records: int = 0
    records_v01: int = 0
    first: int | None = None
    last: int = 0
    """The last valid record, also behind holes."""
    mark: int = 0
    acked: int = 0
    size: int = 0
    data_end: int = 0
    bads: list[Bad] = []
    bads_count: int = 0
    missing: list[tuple[int, int]] = []
    records_behind: int = 0
    """Valid records behind the first bad bytes."""
    is_superseded: bool = False
    """Its last bytes were written again to the next segment and do not count."""

    @property
    def first_bad_byte(self) -> int | None:
        return self.bads[0].start if self.bads else None


def verify(path: Path, disk: Disk | None = None, told: Told = lambda _done, _all: None, processes: int = 2) -> Report:
    """Judge one file. Raises OSError where it cannot be read."""
    disk = disk or RealDisk()
    handle = disk.open(path)
    try:
        named = parse(path.name)
        file = _whose(File(disk, handle, path.parent.name, named.session if named else ""), disk.size(handle))
        end = seek.end_of_data(disk, handle)
        first = named.number if named else None
        walk = None
        if processes > 1 and end >= PARALLEL_BYTES and isinstance(disk, RealDisk):
            walk = _by_pieces(path, file, end, first, told, processes)
        if walk is None:
            walk = _walked(file, 0, end, first, told)
        return _report(path, file, walk, end, disk.size(handle), first)
    finally:
        disk.close(handle)


def _whose(file: File, size: int) -> File:
    """A file may lie elsewhere, as a copy: then its first record says whose it is."""

    class Ids(msgspec.Struct):
        channel_id: str
        playout_session_id: str

    line = seek.line_at(file, 0, min(size, CHUNK))
    try:
        ids = msgspec.json.decode(line or b"", type=Ids)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return file
    return File(file.disk, file.handle, ids.channel_id, ids.playout_session_id)


def _walked(file: File, begin: int, end: int, first: int | None, told: Told) -> Walk:
    walk = Walk(file.channel, file.session, first=first, offset=begin)
    for offset in range(begin, end, CHUNK):
        walk.feed(file.disk.read(file.handle, offset, min(CHUNK, end - offset)))
        told(offset - begin, end - begin)
    walk.end()
    return walk


# ------------------------------------------------------------------------------------------------ two at a time


def _by_pieces(path: Path, file: File, end: int, first: int | None, told: Told, processes: int) -> Walk | None:
    """Several pieces at once; None where something is wrong, which is then told exactly by one reader."""
    borders = _borders(file, end)
    pieces = [
        (path, file.channel, file.session, begin, stop, None if begin else first) for begin, stop in pairwise(borders)
    ]
    whole: Walk | None = None
    pool = ProcessPoolExecutor(processes, mp_context=get_context("fork"))
    try:
        for walk in pool.map(_piece, pieces):
            if whole is not None and not whole.join(walk):
                return None
            whole = whole or walk
            told(whole.offset, end)
    finally:
        pool.shutdown(cancel_futures=True)
    return whole


def _borders(file: File, end: int) -> list[int]:
    """Where the pieces begin and end: lines do."""
    found = [0]
    for wanted in range(PIECE, end - PIECE // 2, PIECE):
        until = min(end, wanted + RECORD_BYTES_MAX + 1)
        border = seek.line_start(file, wanted, until)
        if border < until:  # else there are no records of ours here: no matter where it is cut
            found.append(border)
    return [*found, end]


def _piece(job: tuple[Path, str, str, int, int, int | None]) -> Walk:
    path, channel, session, begin, end, first = job
    disk = RealDisk()
    handle = disk.open(path)
    try:
        return _walked(File(disk, handle, channel, session), begin, end, first, lambda _done, _all: None)
    finally:
        disk.close(handle)


# ------------------------------------------------------------------------------------------------ the verdict


def _report(path: Path, file: File, walk: Walk, end: int, size: int, first: int | None) -> Report:
    place = Place(path.parent, file.channel, file.session)
    acked = read_ack(file.disk, place)
    report = Report(
        path=path,
        channel=file.channel,
        session=file.session,
        verdict=Verdict.WHOLE,
        records=walk.records,
        records_v01=walk.records_v01,
        first=walk.first,
        last=walk.last or 0,
        mark=max(walk.mark, acked, (first or 1) - 1),
        acked=acked,
        size=size,
        data_end=end,
        records_behind=walk.records - walk.records_before if walk.bads else 0,
        bads=walk.bads,
        bads_count=walk.bads_count,
        missing=[found for bad in walk.bads if (found := _missing(bad, acked))],
    )
    if first is None and size > end and not walk.bads:
        report.bads.append(Bad(end, size, walk.last, None, "NUL-filled"))
        report.bads_count = 1
    _judge(report, walk, _next_first(file.disk, place, path))
    return report


def _missing(bad: Bad, acked: int) -> tuple[int, int] | None:
    """At the beginning of a compacted file only what was not acked can be missing."""
    found = bad.missing
    if found is not None and bad.after is None and found[0] <= acked < found[1]:
        return acked + 1, found[1]
    return found


def _next_first(disk: Disk, place: Place, path: Path) -> int | None:
    """Where the next file of the session begins, if there is one."""
    firsts = [one.first for one in segments_of(disk, place)]
    paths = [one.path for one in segments_of(disk, place)]
    at = paths.index(path) + 1 if path in paths else len(paths)
    return firsts[at] if at < len(firsts) else None


def _judge(report: Report, walk: Walk, next_first: int | None) -> None:
    begins, is_bad_at_once = report.first or 1, bool(report.bads) and report.bads[0].after is None
    if begins - 1 > report.acked and not is_bad_at_once and "@" not in report.path.name:
        report.missing.insert(0, (1, begins - 1))
        report.verdict = Verdict.DAMAGED
        return
    unbroken = (report.bads[0].after if report.bads else walk.last) or 0
    if next_first is not None:
        report.is_superseded = unbroken >= next_first - 1 and bool(report.bads)
        if unbroken < next_first - 1 and next_first - 1 > report.acked:
            report.verdict = Verdict.DAMAGED
            report.missing = report.missing or [(unbroken + 1, next_first - 1)]
        return
    if not report.bads:
        return
    if walk.records and walk.records == walk.records_v01:
        report.verdict = Verdict.DAMAGED if walk.has_valid_behind else Verdict.TORN
    else:
        report.verdict = Verdict.TORN if unbroken + 1 > report.mark else Verdict.DAMAGED
    if report.verdict is Verdict.DAMAGED and not report.missing and unbroken < report.mark:
        report.missing = [(unbroken + 1, report.mark)]
