"""The writer: makes the lines of what waits, appends them, syncs, and only then reports them as spooled (SP-002).

Everything happens in `step`, which a thread calls when it is due, and a test one step at a time. One commit is in
flight at a time; what is emitted meanwhile is the next one (SP-PERF-002).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.policy import SpoolPolicy
from holdfast.spool.channel_quota import ChannelQuota
from holdfast.spool.clock import SpoolClock
from holdfast.spool.files.atomic_files import as_unavailable, check_unchanged, remove_file
from holdfast.spool.files.disk import Handle
from holdfast.spool.files.names import temp_path
from holdfast.spool.files.record import DURABLE_FIELD_BYTES_MAX
from holdfast.spool.files.segment_log import Segment, SegmentLog, segment_size
from holdfast.spool.outbox import Outbox
from holdfast.spool.record_queue import QueuedLines
from holdfast.system.histogram import POWERS_OF_TWO, Histogram

COMMIT_BYTES_MAX: Final = 8 << 20
"""Limits what recovery has to read back."""
MEASURE_BYTES: Final = 1 << 16


class Mode(StrEnum):
    """What a record survives once it is spooled."""

    ALWAYS = "always"
    """A power cut; a commit begins as soon as a record waits."""
    GROUP = "group"
    """A power cut; a commit waits for more records, up to the flush interval, unless a caller waits for it."""
    OS = "os"
    """A crash of the process, NOT a power cut: the bytes are in the operating system's cache."""


class CompactedCopy(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A synced copy of what is not acked; it lacks only what was written since it was made."""

    segment: Segment
    """The file that it replaces."""
    handle: Handle
    first: int
    begin: int
    """The offset in the old file at which the copy begins."""
    copied: int
    """The offset in the old file up to which it goes."""


class Writer:
    """The only writer of the session's files."""

    def __init__(
        self,
        *,
        outbox: Outbox,
        log: SegmentLog,
        quota: ChannelQuota,
        policy: SpoolPolicy,
        clock: SpoolClock,
        mode: Mode,
        durable: int,
    ) -> None:
        self._outbox, self._log, self._quota, self._clock, self._mode = outbox, log, quota, clock, mode
        self._flush_ms, self._flush_records = policy.flush_interval_ms, policy.flush_records_max
        self._durable = durable
        """The last sequence that a sync is known to have covered."""
        self.spooled = outbox.spooled
        self.compacted_copy: CompactedCopy | None = None
        self.on_copy_done: Callable[[], None] = lambda: None
        """Called when the compacted copy was installed or discarded."""
        self.must_rotate = False
        self.must_measure = True
        self._measured_at = self._allowed = 0
        self.fault: Unavailable | None = None
        self.is_disk_full = False
        """The medium itself was full: the maintainer has to end the channel."""
        self.on_commit: Callable[[int, int], None] = lambda _last, _now_ms: None
        """Called for each commit: its last sequence, and the wall time when it began."""
        self.commit_records, self.sync_us = Histogram(POWERS_OF_TWO), Histogram(POWERS_OF_TWO)
        self.failures = self.compactions = 0

    # -------------------------------------------------------------------------------------------- when

    def due_in_ms(self) -> int | None:
        """0: now. None: not before the next notification."""
        if self.fault is not None:
            return None
        if self.compacted_copy is not None or self.must_measure or self.must_rotate:
            return 0
        waiting = self._outbox.waiting
        if not waiting:
            return None
        is_requested = self._outbox.flush_requested_to > self._log.view.spooled
        if self._mode is Mode.ALWAYS or waiting >= self._flush_records or is_requested:
            return 0
        return max(0, self._outbox.waiting_since_ms + self._flush_ms - self._clock.monotonic_ms())

    # -------------------------------------------------------------------------------------------- what

    def step(self) -> bool:
        """Do what is due: install a compacted copy, commit once, measure the folder. False: nothing was committed."""
        if self.fault is not None:
            return False
        if self.compacted_copy is not None:
            self._install_copy(self.compacted_copy)
            self.compacted_copy = None  # only now: the maintainer makes no other copy under this name before
            self.must_measure = True
            self.on_copy_done()
        if self.must_rotate:
            self._rotate()
        has_committed = self._commit()
        if self.must_measure or self._is_measure_due():
            self.measure()
        return has_committed

    def _is_measure_due(self) -> bool:
        """Rarely while there is much space left, after each commit when there is little."""
        left = self._outbox.accept_bytes_until - self._outbox.accepted_bytes
        return self.unmeasured_bytes > self._allowed // 4 or (self.unmeasured_bytes > 0 and left < MEASURE_BYTES)

    @property
    def unmeasured_bytes(self) -> int:
        """Bytes written since the folder was measured."""
        return self._outbox.written_bytes - self._measured_at

    def measure(self) -> None:
        """Measure the folder and publish up to which byte records may be accepted."""
        self.must_measure = False
        try:
            written = self._outbox.written_bytes
            self._allowed = self._quota.measure(self._log.active.unfilled if self._log.active else 0)
        except OSError as fault:
            return self.end(as_unavailable(fault, "SP-RET-003"))
        self._measured_at = written
        self._outbox.is_disk_the_limit = self._quota.is_disk_the_limit
        self._outbox.accept_bytes_until = written + self._allowed
        return None

    def _commit(self) -> bool:
        if not self._outbox.waiting:
            return False
        lines = self._outbox.take(COMMIT_BYTES_MAX, self._durable)
        try:
            self._make_room()
            if (room := self._log.active_room()) is not None:
                lines = self._outbox.take(min(room, COMMIT_BYTES_MAX) - DURABLE_FIELD_BYTES_MAX, self._durable)
            self._append(lines)
        except OSError as fault:
            self._after_failure(lines, fault)
        return True

    def _make_room(self) -> None:
        """Begin a new segment where there is none, or where the next record does not fit into this one."""
        room = self._log.active_room()
        if room is not None and room < self._outbox.next_record_bytes():
            self._seal()
            self._begin_segment(self._outbox.next_record_bytes())

    def _seal(self) -> None:
        """The name of the next segment implies that everything before is durable: so it must be, in any mode."""
        if self._mode is Mode.OS and self._log.active is not None:
            self._log.disk.sync(self._log.active.handle)
            self._durable = self._log.view.spooled
        self._log.seal_active()

    def _begin_segment(self, needed: int) -> None:
        """As large as the layout demands and the cap allows, and always large enough for the next record."""
        size = self._log.segment_bytes
        if size is not None:
            size = max(needed, segment_size(size, self._quota.measure()))
        self._log.begin_segment(self._log.view.spooled + 1, size or 0)
        self.must_measure = True

    def _rotate(self) -> None:
        """Begin a new segment, so that the active one can be dropped. If it fails, the next commit reports it."""
        self.must_rotate = False
        try:
            self._seal()
            self._begin_segment(0)
        except OSError:
            self._log.abandon_active()

    def _append(self, lines: QueuedLines) -> None:
        now_ms, begun = self._clock.wall_ms(), time.perf_counter_ns()
        for piece in lines:
            self._log.write(piece)
        last, is_synced = self._log.view.spooled + lines.count, self._mode is not Mode.OS
        self._log.commit(last, sync=is_synced)
        self.sync_us.add((time.perf_counter_ns() - begun) // 1_000)
        self.commit_records.add(lines.count)
        if is_synced:
            self._durable = last
        self._outbox.written_bytes += lines.size_max + DURABLE_FIELD_BYTES_MAX * lines.count
        self.on_commit(last, now_ms)
        self.spooled.advance(last)

    # -------------------------------------------------------------------------------------------- when it fails

    def _after_failure(self, lines: QueuedLines, fault: OSError) -> None:
        """SP-CRASH-003: the file is never written or synced again. The records in memory go into a new segment."""
        self.failures += 1
        try:
            return self._write_to_new_segment(lines)
        except OSError as again:
            fault = again
        if fault.errno in (errno.ENOSPC, errno.EDQUOT):
            self.is_disk_full = True
            try:
                self._quota.release_reserve()
                self._write_to_new_segment(lines)
                return self._outbox.maintainer_wakeup.notify()
            except OSError as again:
                fault = again
        return self.end(as_unavailable(fault, "SP-CRASH-003"))

    def _write_to_new_segment(self, lines: QueuedLines) -> None:
        self._log.abandon_active()
        size = sum(map(len, lines)) + DURABLE_FIELD_BYTES_MAX
        self._log.begin_segment(self._log.view.spooled + 1, 0 if self._log.segment_bytes is None else size)
        self._append(lines)
        self.must_measure = True

    def end(self, fault: Unavailable) -> None:
        """End the session: waiters get the fault, emits are refused."""
        self.fault = fault
        self._log.abandon_active()
        hint = "open a new session; what was spooled stays and can be replayed"
        self._outbox.refuse_all(Refused(fault.rule, f"the session has ended: {fault.message}", hint, "SessionEnded"))
        self.spooled.fail(fault)

    # -------------------------------------------------------------------------------------------- compaction

    def _install_copy(self, copy: CompactedCopy) -> None:
        """Replace the active file by its compacted copy, with what was written since (SP-RET-002).

        Until the rename the old file stays as it is. Between the rename and the sync of the folder a crash may leave
        either: if the sync fails, both hold every spooled record, and the next record begins a new segment.
        """
        disk, active = self._log.disk, self._log.active
        if active is None or active.segment is not copy.segment:
            return self._discard_copy(copy)
        path = active.segment.path
        try:
            if active.data_end > copy.copied:
                rest = disk.read(active.handle, copy.copied, active.data_end - copy.copied)
                disk.write(copy.handle, copy.copied - copy.begin, rest)
                disk.sync(copy.handle)
            check_unchanged(disk, active.handle, path, active.size)
        except OSError:
            return self._discard_copy(copy)
        with self._log.names_lock:
            try:
                disk.rename(temp_path(path), path)
                disk.sync_folder(path.parent)
            except OSError:
                end = max(disk.size(copy.handle), disk.size(active.handle))
                disk.close(copy.handle)
                return self._log.replace_active(None, copy.first, end)
            self._log.replace_active(copy.handle, copy.first, active.data_end - copy.begin)
        self.compactions += 1
        return None

    def _discard_copy(self, copy: CompactedCopy) -> None:
        """The copy is not used. If its file cannot be removed now, the next opening removes it."""
        self._log.disk.close(copy.handle)
        with suppress(OSError):
            remove_file(self._log.disk, temp_path(copy.segment.path))
