"""Reads lines in order and says where they stop being records: the one judge of bytes, for recovery and for verify.

A record is invalid when it is torn, NUL-filled, out of sequence or failing its CRC (SP-CRASH-002). The walk goes on
behind invalid bytes: valid records there tell what was durable and which sequences are missing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.spool import record
from holdfast.spool.record import TAIL, Seen

BADS_KEPT: Final = 1_000
_BRACE: Final = ord("}")


class Bad(msgspec.Struct, gc=False):
    """Bytes that are no records where records should be; start = stop where records are simply not there."""

    start: int
    stop: int
    after: int | None
    """The last record before it, None where nothing valid came before."""
    before: int | None
    """The next record that goes on behind it, None where none does."""
    why: str

    @property
    def missing(self) -> tuple[int, int] | None:
        """The sequences that are not there, as far as one can tell from the records around."""
        first = 1 if self.after is None else self.after + 1
        return None if self.before is None or self.before <= first else (first, self.before - 1)


class Walk:
    """What was found so far. `first` is the sequence that must come first, None where any may."""

    def __init__(self, channel: str, session: str, *, first: int | None = None, offset: int = 0) -> None:
        self._channel, self._session, self._head = channel, session, record.head_of(channel, session)
        self._next, self._rest, self._open = first, b"", False
        self.offset = offset
        """Behind the last line that was looked at."""
        self._fed = offset
        self.first: int | None = None
        self.last: int | None = first - 1 if first is not None else None
        self.last_line = b""
        """The last valid record before the first invalid bytes."""
        self.records = self.records_v01 = self.bads_count = self.mark = 0
        self.records_before = 0
        """Valid records before the first invalid bytes, if there are any."""
        self.bads: list[Bad] = []
        self.has_valid_behind = False
        """Some valid record, also one out of sequence, comes after the first invalid bytes."""

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the file."""
        self._fed += len(chunk)
        lines, self._rest = record.lines_in(self._rest + chunk if self._rest else chunk)
        if self._next is None:
            lines = self._find_first(lines)
        if not lines:
            return
        if self._next is not None and record.are_next(lines, self._head, self._next):
            self._all_valid(lines, self._next)
        else:
            for line in lines:
                self._look(line)
        self.last = self._next - 1 if self._next is not None else None

    def _find_first(self, lines: list[bytes]) -> list[bytes]:
        """Look at lines until one is a record: from there on each sequence is known beforehand."""
        for count, line in enumerate(lines, 1):
            self._look(line)
            if self._next is not None:
                self.last = self._next - 1
                return lines[count:]
        return []

    def _all_valid(self, lines: list[bytes], first: int) -> None:
        """Many at once. Marks only grow, so the last one counts."""
        self._valid(lines[0], first, None)
        marked = next((line for line in reversed(lines) if line[-TAIL - 1] != _BRACE), None)
        self.mark = max(self.mark, (record.mark_of(marked) or 0) if marked else 0)
        self.records += len(lines)
        self._next = first + len(lines)
        self.offset = self._fed - len(self._rest)
        if not self.bads:
            self.last_line = lines[-1]

    def end(self) -> None:
        """No more bytes: a line without an end is torn."""
        if self._rest:
            self._bad(self._rest, "torn: the line has no end", len(self._rest))
            self._rest = b""

    def join(self, behind: Walk) -> bool:
        """Add what another walk found right behind this one; False where only one walk over both can tell exactly."""
        is_v01_behind_ours = bool(behind.records_v01) and self.records > self.records_v01
        if self.bads or behind.bads or is_v01_behind_ours or self.last is None or behind.first != self.last + 1:
            return False
        self.records += behind.records
        self.records_v01 += behind.records_v01
        self.mark = max(self.mark, behind.mark)
        self.last, self.last_line, self.offset = behind.last, behind.last_line, behind.offset
        return True

    def _valid(self, line: bytes, sequence: int, mark: int | None) -> None:
        if mark is not None and mark > self.mark:
            self.mark = mark
        if self.first is None:
            self.first = sequence
        if self._open:
            self.bads[-1].before = sequence
            self._open = False
        if self.bads:
            self.has_valid_behind = True
        else:
            self.last_line = line

    def _look(self, line: bytes) -> None:
        seen = record.read(line, self._channel, self._session)
        if isinstance(seen, Seen) and not seen.has_crc and self.records > self.records_v01:
            seen = "it has no CRC, though records before it have one"
        if isinstance(seen, Seen) and self._next is not None and seen.sequence != self._next:
            self._stray(line, seen)
        elif isinstance(seen, Seen):
            self._valid(line, seen.sequence, seen.durable)
            self._counted(seen, line)
        else:
            self._bad(line, seen, len(line) + 1)

    def _stray(self, line: bytes, seen: Seen) -> None:
        """A whole record, but not the next one: a later one leaves a hole, an earlier one does not belong here."""
        assert self._next is not None
        if seen.sequence < self._next:
            self._bad(line, f"record {seen.sequence} is out of sequence", len(line) + 1)
            self.has_valid_behind = True
            self.mark = max(self.mark, seen.durable or 0)
            return
        if not self._open:
            self._bad(b"", "records are missing", 0)
        self._valid(line, seen.sequence, seen.durable)
        self._counted(seen, line)

    def _counted(self, seen: Seen, line: bytes) -> None:
        self.records += 1
        self.records_v01 += not seen.has_crc
        self._next = seen.sequence + 1
        self.offset += len(line) + 1

    def _bad(self, line: bytes, why: str, length: int) -> None:
        if self._open:
            self.bads[-1].stop = self.offset + length
        else:
            self.records_before = self.records_before if self.bads else self.records
            self.bads_count += 1
            after = self._next - 1 if self._next is not None else None
            if len(self.bads) == BADS_KEPT:
                self.bads.pop()
            why = "NUL-filled" if line and not line.strip(b"\0") else why
            self.bads.append(Bad(self.offset, self.offset + length, after, None, why))
            self._open = True
        self.offset += length
