"""Replay: the spooled records after a sequence, as they are in the files, never one that is not spooled (SP-005).

Every record is checked again when it is read. At a hole replay stops and reports the missing records (SP-CRASH-002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from holdfast.core.base.errors import Corrupt
from holdfast.spool.files import line_search, record
from holdfast.spool.files.disk import Handle
from holdfast.spool.files.line_search import RecordFile
from holdfast.spool.files.losses import Loss, why_lost
from holdfast.spool.files.record import RecordSummary
from holdfast.spool.files.segment_log import Segment, SegmentLog

CHUNK = 1 << 18
SequenceRange = tuple[int, int]


class RecordBatch(msgspec.Struct, frozen=True, gc=False):
    """Consecutive records, as raw lines without their ends."""

    first: int
    lines: list[bytes]


class ReadPosition(msgspec.Struct, frozen=True, gc=False):
    """Where the last replay stopped: the next one begins there without a search."""

    sequence: int
    segment: Segment
    offset: int


class SpoolReader:
    """Reads one session beside its writer."""

    def __init__(
        self, log: SegmentLog, released: Callable[[], list[SequenceRange]], losses: Sequence[Loss] = ()
    ) -> None:
        """`losses`: what was known to be missing when the session was opened."""
        self._log, self._released, self._losses = log, released, losses
        self._disk, self._paths = log.disk, log.paths
        self._head = record.line_head(log.paths.channel, log.paths.session)
        self._position: ReadPosition | None = None
        self.replays = self.replayed_records = 0

    def batches(self, after: int) -> Iterator[RecordBatch]:
        """All spooled records above `after`, in order. Raises Corrupt at a hole, never skips one silently."""
        self.replays += 1
        following = after + 1
        while True:
            view = self._log.view
            if following > view.spooled:
                return
            if following < view.first_available:
                following = self._skip_reclaimed(following, view.first_available)
                continue
            for batch in self._from_segment(following):
                self.replayed_records += len(batch.lines)
                yield batch
                following = batch.first + len(batch.lines)

    def _skip_reclaimed(self, following: int, first: int) -> int:
        """These records were lost, or acked and dropped: then a receiver that needs them again has lost them."""
        if self._is_released(following, first - 1):
            return first
        if why := why_lost(self._losses, following, first - 1):
            raise Corrupt("SP-LOSS-001", why, f"holdfast spool verify {self._paths.folder}")
        message = f"records {following} to {first - 1} were acked and are not here any more"
        raise Corrupt("SP-ACK-004", message, f"the oldest record here is {first}; the receiver must restore its copy")

    def _from_segment(self, following: int) -> Iterator[RecordBatch]:
        """Up to the segment's end, the next segment's first record or the last spooled record, whichever is first."""
        opened = self._log.open_segment_with(following)
        if opened is None:
            return  # it was acked and dropped meanwhile
        segment, last, end, handle = opened
        if handle is None:
            raise self._hole_error(following, last, segment, 0, "the file is gone")
        try:
            yield from self._lines(handle, segment, following, last, end)
        finally:
            self._disk.close(handle)

    def _lines(self, handle: Handle, segment: Segment, following: int, last: int, end: int) -> Iterator[RecordBatch]:
        file = RecordFile(self._disk, handle, self._paths.channel, self._paths.session)
        position = self._position
        if position is not None and position.sequence == following and position.segment is segment:
            offset = position.offset
        else:
            offset = line_search.find_sequence(file, following, end)
        rest = b""
        while following <= last:
            chunk = self._disk.read(handle, offset + len(rest), min(CHUNK, end - offset - len(rest)))
            raw = rest + chunk if rest else chunk
            lines, rest = record.split_lines(raw)
            valid = self._valid_prefix(lines[: last - following + 1], following)
            if valid:
                is_all = len(valid) == len(lines)
                offset += len(raw) - len(rest) if is_all else sum(map(len, valid)) + len(valid)
                self._position = ReadPosition(following + len(valid), segment, offset)
                yield RecordBatch(following, valid)
                following += len(valid)
            if following <= last and (len(valid) < len(lines) or not chunk):
                following, offset = self._skip_hole(file, segment, following, last, offset, end)
                rest = b""

    def _valid_prefix(self, lines: list[bytes], following: int) -> list[bytes]:
        """The lines up to the first one that is not the expected record."""
        if not lines or record.are_expected_lines(lines, self._head, following):
            return lines
        for count, line in enumerate(lines):
            if record.is_expected_line(line, self._head, following + count):
                continue
            parsed = record.parse(line, self._paths.channel, self._paths.session)
            is_expected = isinstance(parsed, RecordSummary) and parsed.sequence == following + count
            # Records of v0.1 senders, without a CRC, come first: behind ours such a line is a damaged one.
            if not is_expected or (count and not record.has_crc_field(line) and record.has_crc_field(lines[count - 1])):
                return lines[:count]
        return lines

    def _skip_hole(
        self, file: RecordFile, segment: Segment, following: int, last: int, offset: int, end: int
    ) -> tuple[int, int]:
        """Continue behind a hole that an operator has released; raise at any other."""
        valid = line_search.find_valid(file, offset, end, end)
        while valid is not None and (valid[1] < following or valid == (offset, following)):
            valid = line_search.find_valid(file, valid[0] + 1, end, end)
        until = last if valid is None or valid[1] > last else valid[1] - 1
        if not self._is_released(following, until):
            raise self._hole_error(following, until, segment, offset, "the bytes are not these records")
        return (until + 1, end) if valid is None or valid[1] > last else (valid[1], valid[0])

    def _is_released(self, first: int, last: int) -> bool:
        return any(low <= first and last <= high for low, high in self._released())

    def _hole_error(self, first: int, last: int, segment: Segment, offset: int, why: str) -> Corrupt:
        what = f"records {first} to {last} are damaged or missing"
        if first >= last:
            what = f"record {first} is damaged or missing" if first == last else f"there are no records before {first}"
        message = f"{what} in {segment.path.name} at byte {offset}: {why}"
        return Corrupt("SP-CRASH-002", message, f"holdfast spool verify {segment.path}")
