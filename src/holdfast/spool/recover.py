"""What a crash left of the last file: its tail is found from the end, judged, and put in order (SP-CRASH-002).

Everything up to the highest durable mark was synced once. What lies above it may be torn: it is quarantined and the
file goes on behind its last valid record. Invalid bytes below it are damage: nothing is touched. So it is enough to
read back from the end until the mark covers what comes before: opening does not grow with the file.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
from crc32c import crc32c

from holdfast.spool import record, seek
from holdfast.spool.disk import Disk, Handle
from holdfast.spool.names import Place
from holdfast.spool.record import Seen
from holdfast.spool.seek import File
from holdfast.spool.walk import Bad, Walk
from holdfast.spool.whole import remove, replace

WINDOW: Final = 1 << 18
"""So much is looked at in any case, from the end."""
CHUNK: Final = 1 << 20


class Verdict(StrEnum):
    """What can be said about a file."""

    WHOLE = "whole"
    TORN = "recoverable"
    DAMAGED = "damaged"


class Tail(msgspec.Struct, frozen=True, gc=False):
    """The end of a file, as recovery sees it."""

    verdict: Verdict
    last: int
    """The last record of the unbroken run, or what its name says came before."""
    end: int
    """Behind that record."""
    data_end: int
    """Behind the last byte that is not padding."""
    size: int
    mark: int
    """Everything up to here was synced once: by the ack, by a mark in a record, or by the segment's name."""
    bad: Bad | None
    last_seen: Seen | None
    """The record `last`."""
    highest: int
    """The last valid record of all, also behind damage."""


def examine(file: File, *, first: int | None, acked: int, window: int = WINDOW) -> Tail:
    """Judge the end of a file. `first` is the sequence that a segment's name promises, None for a plain file."""
    data_end, size = seek.end_of_data(file.disk, file.handle), file.disk.size(file.handle)
    floor = 0 if first is None else first - 1
    while True:
        begin = seek.line_start(file, max(0, data_end - window), data_end)
        if begin == data_end > 0:  # no line begins in the window
            window *= 4
            continue
        walk = _walked(file, begin, data_end, first if begin == 0 else None)
        if first is None and size > data_end:
            _add_padding(walk, size)
        mark = max(acked, floor, walk.mark)
        if begin == 0 or _reaches(walk, mark):
            return _judged(file, walk, data_end, size, mark, floor)
        window *= 4


def _walked(file: File, begin: int, end: int, first: int | None) -> Walk:
    walk = Walk(file.channel, file.session, first=first, offset=begin)
    for offset in range(begin, end, CHUNK):
        walk.feed(file.disk.read(file.handle, offset, min(CHUNK, end - offset)))
    walk.end()
    return walk


def _add_padding(walk: Walk, size: int) -> None:
    """Zeros at the end of a plain file are no padding: a crash made the file longer and its bytes never came."""
    if walk.bads and walk.bads[-1].before is None:
        walk.bads[-1].stop = size
    else:
        walk.bads.append(Bad(walk.offset, size, walk.last, None, "NUL-filled"))
        walk.bads_count += 1


def _reaches(walk: Walk, mark: int) -> bool:
    """The window begins with a valid record, and what comes before it was durable once (or has no marks at all)."""
    if walk.first is None or (walk.bads and walk.bads[0].after is None):
        return False
    return walk.first <= mark + 1 or walk.records == walk.records_v01


def _judged(file: File, walk: Walk, data_end: int, size: int, mark: int, floor: int) -> Tail:
    bad = walk.bads[0] if walk.bads else None
    reached = walk.last if bad is None else bad.after
    last = floor if reached is None else reached
    seen = record.read(walk.last_line, file.channel, file.session) if walk.last_line else None
    end = data_end if bad is None else bad.start
    is_v01 = walk.records == walk.records_v01
    if bad is None:
        verdict = Verdict.WHOLE
    elif is_v01 and walk.records:
        verdict = Verdict.DAMAGED if walk.has_valid_behind else Verdict.TORN
    else:
        verdict = Verdict.TORN if last + 1 > mark else Verdict.DAMAGED
    last_seen = seen if isinstance(seen, Seen) else None
    return Tail(verdict, last, end, data_end, size, mark, bad, last_seen, max(last, walk.last or 0))


# ------------------------------------------------------------------------------------------------ putting in order


def quarantine(disk: Disk, handle: Handle, place: Place, tail: Tail) -> int:
    """Move the bytes behind the last valid record into a file of their own; how many lines they were.

    The copy is durable before the cut. A crash in between does both again, into a file of the same name; the first copy
    goes before, since the cap has no room for three.
    """
    raw = disk.read(handle, tail.end, tail.data_end - tail.end)
    if raw.strip(b"\0"):
        path = place.quarantine(tail.last + 1, crc32c(raw))
        remove(disk, path)
        replace(disk, path, raw)
    disk.cut(handle, tail.end)
    disk.sync(handle)
    return max(1, len(raw.split(b"\n")) - raw.endswith(b"\n"))


def make_sure(file: File, tail: Tail) -> None:
    """Write again what no mark covers, the same bytes at the same place, and sync.

    Those records may be on the medium or only in the machine's memory, and if a sync has failed before us, the next one
    could say yes without writing them. Only bytes that are written anew are certain to be synced (SP-CRASH-003).
    """
    if tail.last > tail.mark:
        begin = seek.find(file, tail.mark + 1, tail.end)
        for offset in range(begin, tail.end, CHUNK):
            file.disk.write(file.handle, offset, file.disk.read(file.handle, offset, min(CHUNK, tail.end - offset)))
    file.disk.sync(file.handle)
