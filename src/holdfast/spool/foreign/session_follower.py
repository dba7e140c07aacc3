"""Follows a session that another program writes: new complete records become readable, nothing is changed (SP-OWN-001).

Like the writer it works in steps, which a thread or a test takes one by one. Its program may not sync what it writes:
the file is synced here before a record counts as spooled (SP-005).
"""

from __future__ import annotations

import logging
from typing import Final

from holdfast.core.base.errors import Unavailable
from holdfast.spool.clock import SpoolClock
from holdfast.spool.files import record
from holdfast.spool.files.atomic_files import as_unavailable
from holdfast.spool.files.disk import Handle
from holdfast.spool.files.record import RecordSummary
from holdfast.spool.files.segment_log import SegmentLog
from holdfast.spool.ticket import SequenceProgress

POLL_MS: Final = 200
CHUNK: Final = 2 * record.RECORD_BYTES_MAX
_log = logging.getLogger("holdfast.spool")


class SessionFollower:
    """Reads what comes to the last file of the session."""

    def __init__(self, log: SegmentLog, spooled: SequenceProgress, clock: SpoolClock) -> None:
        self._segments, self.spooled, self._clock = log, spooled, clock
        self._handle: Handle | None = log.disk.open(log.view.segments[-1].path) if log.view.segments else None
        self._looked_ms = clock.monotonic_ms()

    def due_in_ms(self) -> int | None:
        """0: now. None: never again."""
        if self._handle is None:
            return None
        return max(0, self._looked_ms + POLL_MS - self._clock.monotonic_ms())

    def step(self) -> bool:
        """Take the complete records that were written since; False where there were none."""
        self._looked_ms = self._clock.monotonic_ms()
        if self._handle is None:
            return False
        try:
            return self._take_new(self._handle)
        except OSError as fault:
            self.end(as_unavailable(fault, "SP-OWN-001"))
        return False

    def _take_new(self, handle: Handle) -> bool:
        log, view = self._segments, self._segments.view
        size = log.disk.size(handle)
        if size < view.end or not log.disk.has_name(handle, view.segments[-1].path):
            message = f"its program has cut or replaced {view.segments[-1].path.name}"
            self.end(Unavailable("SP-OWN-001", message, "open the session again"))
            return False
        lines, _ = record.split_lines(log.disk.read(handle, view.end, min(CHUNK, size - view.end)))
        count = self._count_valid(lines, view.spooled + 1)
        if not count:
            return False
        log.disk.sync(handle)
        log.show_more(view.spooled + count, view.end + sum(map(len, lines[:count])) + count)
        self.spooled.advance(view.spooled + count)
        return True

    def _count_valid(self, lines: list[bytes], following: int) -> int:
        """How many lines are the records that come next. A complete line that is none ends the following."""
        paths = self._segments.paths
        for count, line in enumerate(lines):
            seen = record.parse(line, paths.channel, paths.session)
            if not isinstance(seen, RecordSummary) or seen.sequence != following + count:
                why = seen if isinstance(seen, str) else f"record {seen.sequence} is out of sequence"
                if not count:
                    message = f"behind record {following - 1} comes a line that is not record {following}: {why}"
                    self.end(Unavailable("SP-CRASH-002", message, f"holdfast spool verify {paths.plain}"))
                return count
        return len(lines)

    def end(self, fault: Unavailable) -> None:
        """Nothing more is read: whoever waits for a record gets the fault."""
        _log.error("session_not_followed session=%s reason=%s", self._segments.paths.session, fault)
        self.close()
        self.spooled.fail(fault)

    def close(self) -> None:
        if self._handle is not None:
            self._segments.disk.close(self._handle)
            self._handle = None
