"""The writer: takes what piled up, writes it with one write, syncs, and only then calls it spooled (SP-002).

Everything happens in `step`, which a thread calls when `due_in_ms` says so, or a test, one step at a time. One commit
is in flight at a time; what is emitted meanwhile is the next one (SP-PERF-002).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.policy.knobs import SpoolPolicy
from holdfast.core.refusal import Refused, Unavailable
from holdfast.spool.clock import Clock
from holdfast.spool.disk import Handle
from holdfast.spool.log import Log, Segment, segment_size
from holdfast.spool.metrics import Histogram
from holdfast.spool.names import temp_of
from holdfast.spool.outbox import Outbox
from holdfast.spool.record import MARK_BYTES_MAX, marked
from holdfast.spool.room import Room
from holdfast.spool.whole import remove, unavailable

COMMIT_BYTES_MAX: Final = 8 << 20
"""Bounds what recovery has to read back."""
MEASURE_BYTES: Final = 1 << 16


class Mode(StrEnum):
    """What a record has survived when it is called spooled."""

    ALWAYS = "always"
    """A power cut; a commit begins as soon as anything waits."""
    GROUP = "group"
    """A power cut; a commit waits for company, for as long as the flush window allows and nobody waits for it."""
    OS = "os"
    """A crash of the process, NOT a power cut: bytes are with the operating system."""


class Swap(msgspec.Struct, frozen=True, gc=False):
    """A compacted copy, synced, that lacks only what was written since it was begun."""

    segment: Segment
    """The file it is to replace."""
    handle: Handle
    first: int
    begin: int
    """The offset in the old file at which the copy begins."""
    copied: int
    """The offset in the old file up to which it goes."""


class Writer:
    """The one that writes to the session's files."""

    def __init__(
        self, outbox: Outbox, log: Log, room: Room, policy: SpoolPolicy, clock: Clock, mode: Mode, durable: int
    ) -> None:
        self._outbox, self._log, self._room, self._clock, self._mode = outbox, log, room, clock, mode
        self._flush_ms, self._flush_records = policy.flush_interval_ms, policy.flush_records_max
        self._durable = durable
        """The last sequence that a sync is known to have covered."""
        self.spooled = outbox.spooled
        self.swap: Swap | None = None
        self.on_swap: Callable[[], None] = lambda: None
        """Told when the compacted copy was dealt with, well or not."""
        self.must_rotate = False
        self.must_measure = True
        self._measured_at = self._allowed = 0
        self.fault: Unavailable | None = None
        self.ran_full = False
        """The medium itself had no room: the keeper has to end the session."""
        self.on_commit: Callable[[int, int], None] = lambda _last, _now_ms: None
        """Told of each commit: its last sequence, and the wall time when it began."""
        self.commit_records, self.sync_us = Histogram(), Histogram()
        self.failures = self.compactions = 0

    # -------------------------------------------------------------------------------------------- when

    def due_in_ms(self) -> int | None:
        """0: now. None: not before something happens."""
        if self.fault is not None:
            return None
        if self.swap is not None or self.must_measure or self.must_rotate:
            return 0
        waiting = self._outbox.waiting
        if not waiting:
            return None
        is_hurried = self._outbox.hurried_to > self._log.view.spooled
        if self._mode is Mode.ALWAYS or waiting >= self._flush_records or is_hurried:
            return 0
        return max(0, self._outbox.since_ms + self._flush_ms - self._clock.monotonic_ms())

    # -------------------------------------------------------------------------------------------- what

    def step(self) -> bool:
        """Do what there is: the swap of a compacted file, one commit, a look at the cap. False: there was nothing."""
        if self.fault is not None:
            return False
        if self.swap is not None:
            self._swapped(self.swap)
            self.swap = None  # only now: until then the keeper begins no other copy under the same name
            self.must_measure = True
            self.on_swap()
        if self.must_rotate:
            self._rotate()
        did = self._commit()
        if self.must_measure or self._is_measure_due():
            self.measure()
        return did

    def _is_measure_due(self) -> bool:
        """Now and then while there is plenty of room, after each commit when there is little."""
        left = self._outbox.accept_until - self._outbox.accepted
        return self.grown > self._allowed // 4 or (self.grown > 0 and left < MEASURE_BYTES)

    @property
    def grown(self) -> int:
        """Bytes written since the folder was measured."""
        return self._outbox.taken - self._measured_at

    def measure(self) -> None:
        """Publish up to which byte records may be accepted."""
        self.must_measure = False
        try:
            taken = self._outbox.taken
            self._allowed = self._room.measure(self._log.tape.unfilled if self._log.tape else 0)
        except OSError as fault:
            return self.end(unavailable(fault, "SP-RET-003"))
        self._measured_at = taken
        self._outbox.accept_until = taken + self._allowed
        return None

    def _commit(self) -> bool:
        if not self._outbox.waiting:
            return False
        lines: list[bytes] = []
        try:
            self._make_room()
            room = self._log.room_in_tape()
            lines = self._outbox.take(
                COMMIT_BYTES_MAX if room is None else min(room, COMMIT_BYTES_MAX) - MARK_BYTES_MAX
            )
            self._append(lines)
        except OSError as fault:
            lines = lines or self._outbox.take(COMMIT_BYTES_MAX)
            self._after_failure(lines, fault)
        return True

    def _make_room(self) -> None:
        """Begin a new segment where there is none yet or the next record does not fit into this one."""
        room = self._log.room_in_tape()
        if room is not None and room < self._outbox.first_bytes():
            self._seal()
            self._begin_segment(self._outbox.first_bytes())

    def _seal(self) -> None:
        """The name of the next segment says that everything before it is durable: so it must be, in any mode."""
        if self._mode is Mode.OS and self._log.tape is not None:
            self._log.disk.sync(self._log.tape.handle)
            self._durable = self._log.view.spooled
        self._log.seal_tape()

    def _begin_segment(self, needed: int) -> None:
        """As large as the layout says, if the cap has room for it, and in any case large enough."""
        size = self._log.segment_bytes
        if size is not None:
            size = max(needed, segment_size(size, self._room.measure()))
        self._log.begin_segment(self._log.view.spooled + 1, size or 0)
        self.must_measure = True

    def _rotate(self) -> None:
        """Begin a segment though this one has room, so that it can go. If that fails, the next commit finds out."""
        self.must_rotate = False
        try:
            self._seal()
            self._begin_segment(0)
        except OSError:
            self._log.leave_tape()

    def _append(self, lines: list[bytes]) -> None:
        before = self._log.view.spooled
        first = marked(lines[0], self._durable)
        data = b"".join([first, *lines[1:]])
        last = before + len(lines)
        now_ms, begun = self._clock.wall_ms(), time.perf_counter_ns()
        is_synced = self._mode is not Mode.OS
        self._log.append(data, last, sync=is_synced)
        self.sync_us.add((time.perf_counter_ns() - begun) // 1_000)
        self.commit_records.add(len(lines))
        if is_synced:
            self._durable = last
        self._outbox.taken += len(data) - len(first) + len(lines[0]) + MARK_BYTES_MAX * len(lines)
        self.on_commit(last, now_ms)
        self.spooled.reach(last)

    # -------------------------------------------------------------------------------------------- when it fails

    def _after_failure(self, lines: list[bytes], fault: OSError) -> None:
        """SP-CRASH-003: the file is never written or synced again. What is in memory goes into a new segment."""
        self.failures += 1
        try:
            return self._write_elsewhere(lines)
        except OSError as again:
            fault = again
        if fault.errno in (errno.ENOSPC, errno.EDQUOT):
            self.ran_full = True
            try:
                self._room.give_reserve()
                self._write_elsewhere(lines)
                return self._outbox.keeper.give()
            except OSError as again:
                fault = again
        return self.end(unavailable(fault, "SP-CRASH-003"))

    def _write_elsewhere(self, lines: list[bytes]) -> None:
        self._log.leave_tape()
        size = sum(map(len, lines)) + MARK_BYTES_MAX
        self._log.begin_segment(self._log.view.spooled + 1, 0 if self._log.segment_bytes is None else size)
        self._append(lines)
        self.must_measure = True

    def end(self, fault: Unavailable) -> None:
        """The session ends loudly: whoever waits is told, whoever emits is refused."""
        self.fault = fault
        self._log.leave_tape()
        hint = "open a new session; what was spooled stays and can be replayed"
        self._outbox.refuse_from_now_on(
            Refused(fault.rule, f"the session has ended: {fault.says}", hint, "SessionEnded")
        )
        self.spooled.fail(fault)

    # -------------------------------------------------------------------------------------------- compaction's end

    def _swapped(self, swap: Swap) -> None:
        """Put the compacted copy in the file's place, with what came since (SP-RET-002).

        Up to the rename the old file is whole and stays. From the rename on nobody knows which of the two a crash would
        leave, until the folder is synced: if that fails, both hold every spooled record, and the next one begins a
        segment.
        """
        disk, tape = self._log.disk, self._log.tape
        if tape is None or tape.segment is not swap.segment:
            return self._abandon(swap)
        path = tape.segment.path
        try:
            if tape.end > swap.copied:
                rest = disk.read(tape.handle, swap.copied, tape.end - swap.copied)
                disk.write(swap.handle, swap.copied - swap.begin, rest)
                disk.sync(swap.handle)
        except OSError:
            return self._abandon(swap)
        with self._log.names:
            try:
                disk.rename(temp_of(path), path)
                disk.sync_folder(path.parent)
            except OSError:
                end = max(disk.size(swap.handle), disk.size(tape.handle))
                disk.close(swap.handle)
                return self._log.swap_tape(None, swap.first, end)
            self._log.swap_tape(swap.handle, swap.first, tape.end - swap.begin)
        self.compactions += 1
        return None

    def _abandon(self, swap: Swap) -> None:
        """The copy is of no use; its file is found and removed when the session is opened next, if not now."""
        self._log.disk.close(swap.handle)
        with suppress(OSError):
            remove(self._log.disk, temp_of(swap.segment.path))
