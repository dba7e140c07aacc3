"""Reads lines in order and finds the ranges that are not valid records, for recovery and for verify.

A record is invalid when it is torn, NUL-filled, out of sequence or failing its CRC (SP-CRASH-002). The scan continues
behind invalid bytes: valid records there show what was durable and which sequences are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.spool.files import record
from holdfast.spool.files.line_search import RecordFile
from holdfast.spool.files.record import CRC_FIELD_BYTES, RecordSummary

INVALID_RANGES_KEPT: Final = 1_000
_BRACE: Final = ord("}")


class InvalidRange(msgspec.Struct, gc=False):
    """Bytes that are not valid records; start = stop where records are missing and no bytes are in their place."""

    start: int
    stop: int
    after: int | None
    """The last valid record before it, None where there is none."""
    before: int | None
    """The next valid record behind it, None where there is none."""
    why: str
    has_lines: bool = False
    """It holds complete lines: in a file of v0.1 these are not a torn tail."""

    @property
    def missing(self) -> tuple[int, int] | None:
        """The missing sequences, as far as the records around it show."""
        first = 1 if self.after is None else self.after + 1
        return None if self.before is None or self.before <= first else (first, self.before - 1)


class RecordScanner:
    """What the scan has seen so far. `first` is the sequence that must come first, None where any may."""

    def __init__(self, channel: str, session: str, *, first: int | None = None, offset: int = 0) -> None:
        self._channel, self._session, self._head = channel, session, record.line_head(channel, session)
        self._next, self._rest, self._is_range_open = first, b"", False
        self.offset = offset
        """Behind the last line that was scanned."""
        self._fed = offset
        self.first: int | None = None
        self.last: int | None = first - 1 if first is not None else None
        self.last_line = b""
        """The last valid record before the first invalid bytes."""
        self.records = self.records_v01 = self.invalid_count = self.durable_until = 0
        self.records_before = 0
        """Valid records before the first invalid bytes, if there are any."""
        self.invalid_ranges: list[InvalidRange] = []
        self.not_strict: list[tuple[int, int]] = []
        """Sequence and offset of complete lines of v0.1 that are not strict JSON; the first of them."""
        self.not_strict_count = 0
        self.has_valid_behind = False
        """Some valid record, also one out of sequence, comes after the first invalid bytes."""

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the file."""
        self._fed += len(chunk)
        lines, self._rest = record.split_lines(self._rest + chunk if self._rest else chunk)
        if self._next is None:
            lines = self._find_first(lines)
        if not lines:
            return
        if self._next is not None and record.are_expected_lines(lines, self._head, self._next):
            self._accept_all(lines, self._next)
        else:
            for line in lines:
                self._scan_line(line)
        self.last = self._next - 1 if self._next is not None else None

    def _find_first(self, lines: list[bytes]) -> list[bytes]:
        """Scan lines until one is a record: from there on each expected sequence is known."""
        for count, line in enumerate(lines, 1):
            self._scan_line(line)
            if self._next is not None:
                self.last = self._next - 1
                return lines[count:]
        return []

    def _accept_all(self, lines: list[bytes], first: int) -> None:
        """Many at once. `durable` fields only grow, so the last one counts."""
        self._accept(lines[0], first, None)
        with_field = next((line for line in reversed(lines) if line[-CRC_FIELD_BYTES - 1] != _BRACE), None)
        self.durable_until = max(self.durable_until, (record.durable_of(with_field) or 0) if with_field else 0)
        self.records += len(lines)
        self._next = first + len(lines)
        self.offset = self._fed - len(self._rest)
        if not self.invalid_ranges:
            self.last_line = lines[-1]

    def finish(self) -> None:
        """No more bytes: a line without an end is torn."""
        if self._rest:
            self._reject(self._rest, "torn: the line does not end", len(self._rest))
            self._rest = b""

    def join(self, behind: RecordScanner) -> bool:
        """Add the scan of the bytes right behind these; False where only one scan over both gives an exact report."""
        is_v01_behind_ours = bool(behind.records_v01) and self.records > self.records_v01
        if (
            self.invalid_ranges
            or behind.invalid_ranges
            or is_v01_behind_ours
            or self.last is None
            or behind.first != self.last + 1
        ):
            return False
        self.records += behind.records
        self.records_v01 += behind.records_v01
        self.not_strict += behind.not_strict
        self.not_strict_count += behind.not_strict_count
        self.durable_until = max(self.durable_until, behind.durable_until)
        self.last, self.last_line, self.offset = behind.last, behind.last_line, behind.offset
        return True

    def _accept(self, line: bytes, sequence: int, durable: int | None) -> None:
        if durable is not None and durable > self.durable_until:
            self.durable_until = durable
        if self.first is None:
            self.first = sequence
        if self._is_range_open:
            self.invalid_ranges[-1].before = sequence
            self._is_range_open = False
        if self.invalid_ranges:
            self.has_valid_behind = True
        else:
            self.last_line = line

    def _scan_line(self, line: bytes) -> None:
        seen = record.parse(line, self._channel, self._session)
        if isinstance(seen, RecordSummary) and not seen.has_crc and self.records > self.records_v01:
            seen = "it has no CRC, though records before it have one"
        if isinstance(seen, RecordSummary) and self._next is not None and seen.sequence != self._next:
            self._out_of_sequence(line, seen)
        elif isinstance(seen, RecordSummary):
            self._accept(line, seen.sequence, seen.durable)
            self._count(seen, line)
        else:
            self._reject(line, seen, len(line) + 1)

    def _out_of_sequence(self, line: bytes, seen: RecordSummary) -> None:
        """A valid record, but not the next one: a later one leaves a hole, an earlier one does not belong here."""
        assert self._next is not None
        if seen.sequence < self._next:
            self._reject(line, f"record {seen.sequence} is out of sequence", len(line) + 1)
            self.has_valid_behind = True
            self.durable_until = max(self.durable_until, seen.durable or 0)
            return
        if not self._is_range_open:
            self._reject(b"", "records are missing", 0)
        self._accept(line, seen.sequence, seen.durable)
        self._count(seen, line)

    def _count(self, seen: RecordSummary, line: bytes) -> None:
        self.records += 1
        self.records_v01 += not seen.has_crc
        if not seen.is_strict:
            self.not_strict_count += 1
            if len(self.not_strict) < INVALID_RANGES_KEPT:
                self.not_strict.append((seen.sequence, self.offset))
        self._next = seen.sequence + 1
        self.offset += len(line) + 1

    def _reject(self, line: bytes, why: str, length: int) -> None:
        if self._is_range_open:
            self.invalid_ranges[-1].stop = self.offset + length
        else:
            self.records_before = self.records_before if self.invalid_ranges else self.records
            self.invalid_count += 1
            after = self._next - 1 if self._next is not None else None
            if len(self.invalid_ranges) == INVALID_RANGES_KEPT:
                self.invalid_ranges.pop()
            why = "NUL-filled" if line and not line.strip(b"\0") else why
            self.invalid_ranges.append(InvalidRange(self.offset, self.offset + length, after, None, why))
            self._is_range_open = True
        self.invalid_ranges[-1].has_lines |= length > len(line)
        self.offset += length


def scan_file(
    file: RecordFile,
    begin: int,
    end: int,
    *,
    first: int | None,
    chunk_bytes: int,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> RecordScanner:
    """Scan the bytes from `begin` to `end`, a chunk at a time."""
    scanner = RecordScanner(file.channel, file.session, first=first, offset=begin)
    for offset in range(begin, end, chunk_bytes):
        scanner.feed(file.disk.read(file.handle, offset, min(chunk_bytes, end - offset)))
        on_progress(offset - begin, end - begin)
    scanner.finish()
    return scanner
