"""The keeper: stores acks, lets go of what the receiver has, watches the cap. It never holds the writer up.

Like the writer it works in steps, which its thread or a test takes one by one.
"""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from typing import Final

from holdfast.core.policy.knobs import SpoolPolicy
from holdfast.core.refusal import Refused
from holdfast.spool import channel, seek
from holdfast.spool.clock import Clock
from holdfast.spool.log import Log, Tape
from holdfast.spool.names import temp_of
from holdfast.spool.outbox import SPOOL_FULL, Outbox
from holdfast.spool.record import CHANNEL_TERMINATED
from holdfast.spool.room import Room, mark_full, unmark_full
from holdfast.spool.seek import File
from holdfast.spool.ticket import Progress
from holdfast.spool.whole import remove, write_ack
from holdfast.spool.writer import Swap, Writer

COMPACT_BYTES: Final = 1 << 20
"""A plain file below this is not compacted by itself."""
CHUNK: Final = 1 << 20
REASON_FULL: Final = "EVIDENCE_SPOOL_FULL"
_log = logging.getLogger("holdfast.spool")


class Keeper:
    """What happens to an open session besides appending to it."""

    def __init__(
        self, outbox: Outbox, log: Log, room: Room, writer: Writer, policy: SpoolPolicy, clock: Clock, acked: int
    ) -> None:
        self._outbox, self._log, self._room, self._writer = outbox, log, room, writer
        self._policy, self._clock = policy, clock
        self.acked = Progress(acked, lambda _: outbox.keeper.give())
        """The ack that is stored."""
        self.ack_wanted = acked
        """The highest ack that was received."""
        self.asked = 0
        self.answered = Progress(0, lambda _: outbox.keeper.give())
        """How many requests for compaction were dealt with; the writer, too, says so, with a copy in place."""
        self.is_full = False
        self.failures = 0

    def begin(self) -> None:
        """SP-RET-003: without a reserve nothing is taken; but what is here can be delivered, which may make room."""
        try:
            self._room.hold_reserve()
        except OSError as fault:
            if fault.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._room.give_reserve()
            self.is_full = True
            hint = "emits are welcome when there is room: deliver what is here, or free some"
            no = Refused("SP-RET-003", "the disk is full, there is no room for the reserve", hint, SPOOL_FULL)
            self._outbox.refuse_from_now_on(no)

    def has_work(self) -> bool:
        is_asked = self.asked > self.answered.reached and self._writer.swap is None
        wants_room = self._outbox.wanted_bytes or self._writer.ran_full
        return bool(self.ack_wanted > self.acked.reached or is_asked or wants_room)

    def step(self) -> bool:
        """Do what there is; False where the disk said no. Then it is asked again at the next step."""
        try:
            self._store_ack()
            self._let_go()
            self._see_to_the_cap()
            return True
        except OSError as fault:
            self.failures += 1
            self._outbox.wanted_bytes = 0
            self.answered.reach_at_least(self.asked)
            _log.warning("%s: keeping the session in order failed: %s", self._log.place.session, fault)
            return False

    def _store_ack(self) -> None:
        """SP-ACK-003: only a higher ack is stored; several that came meanwhile are one."""
        wanted = self.ack_wanted
        if wanted > self.acked.reached:
            write_ack(self._log.disk, self._log.place, wanted, self._clock.wall_ms())
            self.acked.reach(wanted)

    # -------------------------------------------------------------------------------------------- letting go

    def _let_go(self) -> None:
        """SP-RET-002: drop what the stored ack covers. Whole segments are unlinked, a plain file is copied."""
        freed = False
        while len(view := self._log.view.segments) > 1 and view[1].first - 1 <= self.acked.reached:
            self._log.drop_first()
            freed = True
        self._maybe_rotate()
        if not self._begin_compaction():
            self.answered.reach_at_least(self.asked)
        if freed:
            self._writer.must_measure = True
            self._outbox.writer.give()

    def _maybe_rotate(self) -> None:
        """A segment that grows, because a file had to be left behind, is followed by another; then it can be dropped.

        It cannot be compacted: its name says its first record. One that ends the channel stays: its last record says
        that the session is finished, and nothing else may.
        """
        tape, is_over = self._log.tape, self._outbox.last_type == CHANNEL_TERMINATED
        if tape is None or tape.segment.is_plain or tape.unfilled or is_over:
            return
        if self._is_half_acked(tape):
            self._writer.must_rotate = True
            self._outbox.writer.give()

    def _begin_compaction(self) -> bool:
        """True where a copy is on its way, or was posted now: the answer comes with its swap."""
        if self._writer.swap is not None:
            return True
        tape, asked = self._log.tape, self.asked
        if tape is None or not tape.segment.is_plain or not self._is_worth_it(tape):
            return False
        swap = self._copied(tape, keep_from=min(self.acked.reached + 1, self._log.view.spooled))
        if swap is None:
            return False
        self._writer.on_swap = lambda: self._compacted(asked)
        self._writer.swap = swap
        self._outbox.writer.give()
        return True

    def _compacted(self, asked: int) -> None:
        """The writer tells that the copy was dealt with. A full channel may have room now."""
        self.answered.reach_at_least(asked)
        if self.is_full:
            self._outbox.keeper.give()

    def _is_worth_it(self, tape: Tape) -> bool:
        if self._gone(tape) <= 0:
            return False
        is_wanted = self.asked > self.answered.reached or self._outbox.wanted_bytes or self.is_full
        return bool(is_wanted) or self._is_half_acked(tape)

    def _is_half_acked(self, tape: Tape) -> bool:
        return tape.end >= COMPACT_BYTES and self._gone(tape) * 2 >= self._log.view.spooled - tape.segment.first

    def _gone(self, tape: Tape) -> int:
        """How many of its records are acked, but for the last one."""
        return min(self.acked.reached + 1, self._log.view.spooled) - tape.segment.first

    def _copied(self, tape: Tape, keep_from: int) -> Swap | None:
        """Copy what stays, byte for byte, into a temp file and sync it, while the writer goes on in the old one.

        The last record always stays, so that the next sequence is known even if the ack is lost. None where the copy
        would not fit below the cap.
        """
        disk, place, path = self._log.disk, self._log.place, tape.segment.path
        end = self._log.view.end
        source = disk.open(path)
        try:
            begin = seek.find(File(disk, source, place.channel, place.session), keep_from, end)
            self._make_place(end - begin)
            if end - begin > self._policy.channel_bytes_max - self._room.used:
                return None
            remove(disk, temp_of(path))
            copy = disk.create(temp_of(path))
            try:
                for offset in range(begin, end, CHUNK):
                    disk.write(copy, offset - begin, disk.read(source, offset, min(CHUNK, end - offset)))
                disk.sync(copy)
            except OSError:
                disk.close(copy)
                raise
        finally:
            disk.close(source)
        return Swap(tape.segment, copy, keep_from, begin, end)

    def _make_place(self, needed: int) -> None:
        """A small copy may take the reserve's place for a moment: afterwards there is more room than before."""
        self._room.measure()
        if needed > self._policy.channel_bytes_max - self._room.used and needed <= self._policy.reserve_bytes:
            self._room.give_reserve()
            self._room.measure()

    # -------------------------------------------------------------------------------------------- the cap

    def _see_to_the_cap(self) -> None:
        """SP-RET-003: first reclaim; then say that the channel ends, into the reserve; then refuse until well below."""
        wanted = self._outbox.wanted_bytes
        if self.is_full:
            return self._maybe_reopen()
        if not wanted and not self._writer.ran_full:
            return self._hold_reserve()
        self._outbox.wanted_bytes = 0
        if self._writer.swap is not None and not self._writer.ran_full:
            return None  # it frees more than we know yet; the refused emitter's next try asks again
        self._reclaim()
        tape = self._log.tape
        allowed = self._room.measure(tape.unfilled if tape else 0)
        is_enough = self._outbox.accepted + wanted <= self._outbox.taken + allowed
        if self._writer.ran_full or not is_enough:
            self._end_channel()
        self._writer.must_measure = True
        self._outbox.writer.give()
        return None

    def _end_channel(self) -> None:
        self._room.give_reserve()
        with suppress(OSError):  # the mark is for those who come later; a disk without room may refuse even that
            mark_full(self._log.disk, self._log.place.folder)
        self.is_full, self._writer.ran_full = True, False
        hint = "emits are welcome again when acks have freed a tenth of the cap; or raise spool.channel_bytes_max"
        no = Refused("SP-RET-003", "the channel's folder is full, the channel was terminated", hint, SPOOL_FULL)
        now_ms = self._clock.wall_ms()
        detail = f"{self._room.used} of {self._policy.channel_bytes_max} bytes are used"
        payload = {"termination_utc_ms": now_ms, "reason": REASON_FULL, "detail": detail}
        self._outbox.end_with(CHANNEL_TERMINATED, payload, no)
        _log.error("%s: %s: %s", self._log.place.session, no, detail)

    def _maybe_reopen(self) -> None:
        """Below the low-water mark everything is as before. A segment that is wholly acked is left behind first."""
        self._outbox.wanted_bytes = 0
        self._reclaim()
        self._room.measure()
        tape, view = self._log.tape, self._log.view
        if self._room.is_low:
            is_acked = self.acked.reached >= view.spooled and not self._outbox.waiting
            if is_acked and tape is not None and not tape.segment.is_plain and tape.size:
                self._writer.must_rotate = True
                self._outbox.writer.give()
            return
        self._hold_reserve()
        if not self._room.has_reserve:
            return  # a copy that is on its way, or others, have its place: nothing is accepted without a last word
        unmark_full(self._log.disk, self._log.place.folder)
        self.is_full = False
        self._outbox.refuse_from_now_on(None)
        self._writer.must_measure = True
        self._outbox.writer.give()

    def _reclaim(self) -> None:
        place = self._log.place
        channel.reclaim(self._log.disk, place.folder, self._clock.wall_ms(), but=place.session)

    def _hold_reserve(self) -> None:
        if not self._room.has_reserve:
            self._room.measure()
            self._room.hold_reserve()
