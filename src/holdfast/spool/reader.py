"""Replay: the spooled records after a sequence, as they stand in the files, never one that is not spooled (SP-005).

Every record is checked again on its way out. Where the run breaks, replay stops before the hole and says which records
are missing (SP-CRASH-002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.core.refusal import Corrupt
from holdfast.spool import record, seek
from holdfast.spool.disk import Handle
from holdfast.spool.log import Log, Segment
from holdfast.spool.record import Seen
from holdfast.spool.seek import File

CHUNK = 1 << 18
Range = tuple[int, int]


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Some records in a row, as raw lines without their ends."""

    first: int
    lines: list[bytes]


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Where the last replay stopped, so that the next one need not search."""

    sequence: int
    segment: Segment
    offset: int


class Reader:
    """Reads one session beside its writer."""

    def __init__(self, log: Log, released: Callable[[], list[Range]]) -> None:
        self._log, self._released = log, released
        self._disk, self._place = log.disk, log.place
        self._head = record.head_of(log.place.channel, log.place.session)
        self._bookmark: Bookmark | None = None
        self.replays = self.replayed = 0

    def batches(self, after: int) -> Iterator[Batch]:
        """All spooled records above `after`, in order. Raises Corrupt before a hole, never skips one in silence."""
        self.replays += 1
        following = after + 1
        while True:
            view = self._log.view
            if following > view.spooled:
                return
            if following < view.first_available:
                following = self._beyond_the_floor(following, view.first_available)
                continue
            for batch in self._from_segment(following):
                self.replayed += len(batch.lines)
                yield batch
                following = batch.first + len(batch.lines)

    def _beyond_the_floor(self, following: int, first: int) -> int:
        """What was asked for is not here any more: it was acked once, and whoever asks again has lost it."""
        if self._is_released(following, first - 1):
            return first
        says = f"records {following} to {first - 1} were acked and are not here any more"
        raise Corrupt("SP-ACK-004", says, f"the oldest record here is {first}; the receiver has to find its own copy")

    def _from_segment(self, following: int) -> Iterator[Batch]:
        """Until the segment's end, the next segment's beginning or the last spooled record, whatever comes first."""
        opened = self._log.open_for(following)
        if opened is None:
            return  # it was acked and dropped while we came
        segment, last, end, handle = opened
        if handle is None:
            raise self._hole(following, last, segment, 0, "the file is gone")
        try:
            yield from self._lines(handle, segment, following, last, end)
        finally:
            self._disk.close(handle)

    def _lines(self, handle: Handle, segment: Segment, following: int, last: int, end: int) -> Iterator[Batch]:
        file = File(self._disk, handle, self._place.channel, self._place.session)
        mark = self._bookmark
        if mark is not None and mark.sequence == following and mark.segment is segment:
            offset = mark.offset
        else:
            offset = seek.find(file, following, end)
        rest = b""
        while following <= last:
            chunk = self._disk.read(handle, offset + len(rest), min(CHUNK, end - offset - len(rest)))
            raw = rest + chunk if rest else chunk
            lines, rest = record.lines_in(raw)
            good = self._checked(lines[: last - following + 1], following)
            if good:
                is_all = len(good) == len(lines)
                offset += len(raw) - len(rest) if is_all else sum(map(len, good)) + len(good)
                self._bookmark = Bookmark(following + len(good), segment, offset)
                yield Batch(following, good)
                following += len(good)
            if following <= last and (len(good) < len(lines) or not chunk):
                following, offset = self._over_the_hole(file, segment, following, last, offset, end)
                rest = b""

    def _checked(self, lines: list[bytes], following: int) -> list[bytes]:
        """The lines up to the first that is not the record it should be."""
        if not lines or record.are_next(lines, self._head, following):
            return lines
        for count, line in enumerate(lines):
            if record.is_next(line, self._head, following + count):
                continue
            seen = record.read(line, self._place.channel, self._place.session)
            is_fit = isinstance(seen, Seen) and seen.sequence == following + count
            # Records of old senders, without a CRC, stand at the beginning; behind ours such a line is a damaged one.
            if not is_fit or (count and not record.is_sealed(line) and record.is_sealed(lines[count - 1])):
                return lines[:count]
        return lines

    def _over_the_hole(
        self, file: File, segment: Segment, following: int, last: int, offset: int, end: int
    ) -> tuple[int, int]:
        """Go on behind a hole that an operator has released; raise at any other."""
        found = seek.next_valid(file, offset, end, end)
        while found is not None and (found[1] < following or found == (offset, following)):
            found = seek.next_valid(file, found[0] + 1, end, end)
        until = last if found is None or found[1] > last else found[1] - 1
        if not self._is_released(following, until):
            raise self._hole(following, until, segment, offset, "the bytes there are not these records")
        return (until + 1, end) if found is None or found[1] > last else (found[1], found[0])

    def _is_released(self, first: int, last: int) -> bool:
        return any(low <= first and last <= high for low, high in self._released())

    def _hole(self, first: int, last: int, segment: Segment, offset: int, why: str) -> Corrupt:
        what = f"records {first} to {last} are damaged or missing"
        if first >= last:
            what = f"record {first} is damaged or missing" if first == last else f"no records stand before {first}"
        says = f"{what} in {segment.path.name} at byte {offset}: {why}"
        return Corrupt("SP-CRASH-002", says, f"holdfast spool verify {segment.path}")
