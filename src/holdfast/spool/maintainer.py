"""The maintainer: stores acks, drops what the receiver has, enforces the cap. It never blocks the writer.

Like the writer it works in steps, which its thread or a test takes one by one.
"""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from functools import partial
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.policy import SpoolPolicy
from holdfast.spool import channel
from holdfast.spool.channel_quota import ChannelQuota, mark_full, unmark_full
from holdfast.spool.clock import SpoolClock
from holdfast.spool.files import line_search
from holdfast.spool.files.atomic_files import remove_file
from holdfast.spool.files.line_search import RecordFile
from holdfast.spool.files.names import SessionPaths, temp_path
from holdfast.spool.files.record import CHANNEL_TERMINATED
from holdfast.spool.files.segment_log import ActiveSegment, SegmentLog
from holdfast.spool.files.session_markers import write_ack
from holdfast.spool.outbox import SPOOL_FULL, Outbox
from holdfast.spool.ticket import SequenceProgress
from holdfast.spool.writer import CompactedCopy, Writer

ACK_STORE_MS: Final = 250
"""How long an ack may wait to be stored while no caller waits for that: the next one is stored with it."""
COMPACT_BYTES: Final = 1 << 20
"""A plain file below this is not compacted by itself."""
CHUNK: Final = 1 << 20
REASON_FULL: Final = "EVIDENCE_SPOOL_FULL"
_log = logging.getLogger("holdfast.spool")


class Maintainer:
    """What happens to an open session besides appending to it."""

    def __init__(
        self,
        outbox: Outbox,
        log: SegmentLog,
        quota: ChannelQuota,
        writer: Writer,
        policy: SpoolPolicy,
        clock: SpoolClock,
        acked: int,
        marker_paths: SessionPaths | None,
        is_read_only: bool,
    ) -> None:
        """`marker_paths`: where acks are stored. A session that is read-only is left as it is, but for its ack."""
        self._outbox, self._log, self._quota, self._writer = outbox, log, quota, writer
        self._policy, self._clock = policy, clock
        self._marker_paths, self.is_read_only = marker_paths, is_read_only
        self.ack_stored = SequenceProgress(acked, self._request_ack)
        """The ack that is stored."""
        self.ack_received = acked
        """The highest ack that was received."""
        self._ack_requested = acked
        """The highest ack that somebody waits for."""
        self._ack_waits_since_ms = 0
        self.keep_from: int | None = None
        """Records from this one on are kept although they are acked."""
        self.compactions_requested = 0
        self.compactions_done = SequenceProgress(0, lambda _: outbox.maintainer_wakeup.notify())
        """How many requests for compaction are done; the writer advances it, too, when it has installed a copy."""
        self.is_full = False
        """The cap or the disk is reached: no record is accepted until there is space (SP-RET-003)."""
        self.failures = 0

    def begin(self) -> None:
        """SP-RET-003: without a reserve no record is accepted; delivering what is here may free the space for it."""
        try:
            self._quota.allocate_reserve()
        except OSError as fault:
            if fault.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._quota.release_reserve()
            self.is_full = True
            hint = "records are accepted when there is space: free some on the disk"
            message = f"the disk is full, there is no space for the reserve in {self._log.paths.folder}"
            refusal = Refused("SP-RET-003", message, hint, SPOOL_FULL)
            self._outbox.refuse_all(refusal)

    def receive_ack(self, sequence: int) -> None:
        """A higher ack. Only the first one that is not stored wakes the thread."""
        is_first = self.ack_received <= self.ack_stored.reached
        if is_first:
            self._ack_waits_since_ms = self._clock.monotonic_ms()
        self.ack_received = sequence
        if is_first or self._must_make_space():
            self._outbox.maintainer_wakeup.notify()

    def _request_ack(self, sequence: int) -> None:
        self._ack_requested = max(self._ack_requested, sequence)
        self._outbox.maintainer_wakeup.notify()

    def ack_due_in_ms(self) -> int | None:
        """When the ack must be stored; None where it is, or where no acks are stored."""
        if self.ack_received <= self.ack_stored.reached or self._marker_paths is None:
            return None
        if self._ack_requested > self.ack_stored.reached or self._must_make_space():
            return 0
        return max(0, self._ack_waits_since_ms + ACK_STORE_MS - self._clock.monotonic_ms())

    def _must_make_space(self) -> bool:
        return bool(self.is_full or self._outbox.wanted_bytes or self._writer.is_disk_full)

    def has_work(self) -> bool:
        must_compact = (
            self.compactions_requested > self.compactions_done.reached and self._writer.compacted_copy is None
        )
        needs_space = self._outbox.wanted_bytes or self._writer.is_disk_full
        return bool(self.ack_due_in_ms() == 0 or must_compact or needs_space)

    def step(self) -> bool:
        """Do what is due; False where the disk failed. The next step tries again."""
        try:
            self._store_ack()
            if self.is_read_only:
                self._leave_alone()
            else:
                self._drop_acked()
                self._enforce_quota()
            return True
        except OSError as fault:
            self.failures += 1
            self._outbox.wanted_bytes = 0
            self.compactions_done.advance_at_least(self.compactions_requested)
            _log.warning("maintenance_failed session=%s reason=%s", self._log.paths.session, fault)
            return False

    def _store_ack(self) -> None:
        """SP-ACK-003: only a higher ack is stored. Of several that arrived meanwhile only the highest is."""
        received = self.ack_received
        if received > self.ack_stored.reached and self._marker_paths is not None:
            write_ack(self._log.disk, self._marker_paths, received, self._clock.wall_ms())
            self.ack_stored.advance(received)

    def _leave_alone(self) -> None:
        """A damaged session, or one of another program: nothing is dropped, no reserve is made."""
        self._outbox.wanted_bytes = 0
        self.compactions_done.advance_at_least(self.compactions_requested)

    # -------------------------------------------------------------------------------------------- dropping

    @property
    def _droppable(self) -> int:
        """The last record that may be dropped."""
        kept = self.keep_from
        return self.ack_stored.reached if kept is None else min(self.ack_stored.reached, kept - 1)

    def _drop_acked(self) -> None:
        """SP-RET-002: drop what the stored ack covers. Whole segments are unlinked, a plain file is copied."""
        freed = False
        while len(view := self._log.view.segments) > 1 and view[1].first - 1 <= self._droppable:
            self._log.drop_first()
            freed = True
        self._maybe_rotate()
        if not self._begin_compaction():
            self.compactions_done.advance_at_least(self.compactions_requested)
        if freed:
            self._writer.must_measure = True
            self._outbox.writer_wakeup.notify()

    def _maybe_rotate(self) -> None:
        """A segment without a fixed size, begun after a failure, is followed by another one, so that it can be dropped.

        It cannot be compacted: its name has its first record. One that ends the channel stays: its last record alone
        tells that the session is finished.
        """
        active, is_over = self._log.active, self._outbox.last_type == CHANNEL_TERMINATED
        if active is None or active.segment.is_plain or active.unfilled or is_over:
            return
        if self._is_half_acked(active):
            self._writer.must_rotate = True
            self._outbox.writer_wakeup.notify()

    def _begin_compaction(self) -> bool:
        """True where the writer has a copy to install: the compaction is done when it has."""
        if self._writer.compacted_copy is not None:
            return True
        active, requested = self._log.active, self.compactions_requested
        if active is None or not active.segment.is_plain or not self._should_compact(active):
            return False
        copy = self._copy_unacked(active, keep_from=min(self._droppable + 1, self._log.view.spooled))
        if copy is None:
            return False
        self._writer.on_copy_done = partial(self._on_compacted, requested)
        self._writer.compacted_copy = copy
        self._outbox.writer_wakeup.notify()
        return True

    def _on_compacted(self, requested: int) -> None:
        """Called by the writer when it has installed or discarded the copy.

        A full channel may have space now, and a request that came meanwhile could not begin before.
        """
        self.compactions_done.advance_at_least(requested)
        if self.is_full or self.has_work():
            self._outbox.maintainer_wakeup.notify()

    def _should_compact(self, active: ActiveSegment) -> bool:
        if self._acked_records(active) <= 0:
            return False
        is_wanted = (
            self.compactions_requested > self.compactions_done.reached or self._outbox.wanted_bytes or self.is_full
        )
        return bool(is_wanted) or self._is_half_acked(active)

    def _is_half_acked(self, active: ActiveSegment) -> bool:
        return (
            active.data_end >= COMPACT_BYTES
            and self._acked_records(active) * 2 >= self._log.view.spooled - active.segment.first
        )

    def _acked_records(self, active: ActiveSegment) -> int:
        """How many of its records may be dropped, not counting the last one."""
        return min(self._droppable + 1, self._log.view.spooled) - active.segment.first

    def _copy_unacked(self, active: ActiveSegment, keep_from: int) -> CompactedCopy | None:
        """Copy what stays, byte for byte, into a temporary file and sync it, while the writer appends to the old one.

        The last record always stays, so that the next sequence is known even if the ack is lost. None where the copy
        does not fit below the cap.
        """
        disk, paths, path = self._log.disk, self._log.paths, active.segment.path
        end = self._log.view.end
        source = disk.open(path)
        try:
            begin = line_search.find_sequence(RecordFile(disk, source, paths.channel, paths.session), keep_from, end)
            self._make_space(end - begin)
            if end - begin > self._policy.channel_bytes_max - self._quota.used_bytes:
                return None
            remove_file(disk, temp_path(path))
            copy = disk.create(temp_path(path))
            try:
                for offset in range(begin, end, CHUNK):
                    disk.write(copy, offset - begin, disk.read(source, offset, min(CHUNK, end - offset)))
                disk.sync(copy)
            except OSError:
                disk.close(copy)
                raise
        finally:
            disk.close(source)
        return CompactedCopy(segment=active.segment, handle=copy, first=keep_from, begin=begin, copied=end)

    def _make_space(self, needed: int) -> None:
        """A small copy may use the reserve's space for a moment: afterwards more is free than before."""
        self._quota.measure()
        if needed > self._policy.channel_bytes_max - self._quota.used_bytes and needed <= self._policy.reserve_bytes:
            self._quota.release_reserve()
            self._quota.measure()

    # -------------------------------------------------------------------------------------------- the cap

    def _enforce_quota(self) -> None:
        """SP-RET-003: reclaim; else end the channel with a last record, and refuse until below the low-water mark."""
        wanted = self._outbox.wanted_bytes
        if self.is_full:
            return self._maybe_reopen()
        if not wanted and not self._writer.is_disk_full:
            return self._ensure_reserve()
        self._outbox.wanted_bytes = 0
        if self._writer.compacted_copy is not None and not self._writer.is_disk_full:
            return None  # how much it frees is not known yet; the next refused emit asks again
        self._reclaim()
        active = self._log.active
        allowed = self._quota.measure(active.unfilled if active else 0)
        is_enough = self._outbox.accepted_bytes + wanted <= self._outbox.written_bytes + allowed
        if self._writer.is_disk_full or not is_enough:
            self._end_channel()
        self._writer.must_measure = True
        self._outbox.writer_wakeup.notify()
        return None

    def _end_channel(self) -> None:
        self._quota.is_disk_the_limit |= self._writer.is_disk_full
        waiting_bytes = self._outbox.accepted_bytes - self._outbox.written_bytes
        limit, is_disk = self._quota.describe_limit(waiting_bytes), self._quota.is_disk_the_limit
        self._quota.release_reserve()
        with suppress(OSError):  # the marker is for later sessions; a full disk may refuse even that
            mark_full(self._log.disk, self._log.paths.folder)
        self.is_full, self._writer.is_disk_full = True, False
        message = "the channel's folder is full, the channel was terminated"
        hint = "records are accepted again when acks have freed a tenth of the cap; or raise spool.channel_bytes_max"
        if is_disk:
            message = f"{limit} on the file system of {self._log.paths.folder}; the channel was terminated"
            hint = "records are accepted again when the disk has space: free some"
        refusal = Refused("SP-RET-003", message, hint, SPOOL_FULL)
        payload = {"termination_utc_ms": self._clock.wall_ms(), "reason": REASON_FULL, "detail": limit}
        self._outbox.append_last(CHANNEL_TERMINATED, payload, refusal)
        _log.error("channel_terminated session=%s reason=%s detail=%s", self._log.paths.session, refusal, limit)

    def _maybe_reopen(self) -> None:
        """Below the low-water mark records are accepted again. Above it a fully acked segment is rotated to free it."""
        self._outbox.wanted_bytes = 0
        self._reclaim()
        self._quota.measure()
        active, view = self._log.active, self._log.view
        if self._quota.must_stay_full:
            is_acked = self.ack_stored.reached >= view.spooled and not self._outbox.waiting
            if is_acked and active is not None and not active.segment.is_plain and active.size:
                self._writer.must_rotate = True
                self._outbox.writer_wakeup.notify()
            return
        self._ensure_reserve()
        if not self._quota.has_reserve:
            return  # a copy or other sessions have its space: without a reserve no record is accepted
        unmark_full(self._log.disk, self._log.paths.folder)
        self.is_full = False
        self._outbox.refuse_all(None)
        self._writer.must_measure = True
        self._outbox.writer_wakeup.notify()

    def _reclaim(self) -> None:
        paths = self._log.paths
        channel.reclaim(self._log.disk, paths.folder, self._clock.wall_ms(), except_session=paths.session)

    def _ensure_reserve(self) -> None:
        if not self._quota.has_reserve:
            self._quota.measure()
            self._quota.allocate_reserve()
