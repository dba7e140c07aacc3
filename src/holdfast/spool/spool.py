"""The durable outbox as its user sees it: open, emit, wait, replay, ack, close."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.policy import SpoolPolicy
from holdfast.spool.channel_quota import ChannelQuota
from holdfast.spool.clock import SpoolClock, SystemClock
from holdfast.spool.files.atomic_files import as_unavailable, remove_file
from holdfast.spool.files.disk import Disk, RealDisk
from holdfast.spool.files.losses import why_lost
from holdfast.spool.files.names import SessionPaths, why_not_id
from holdfast.spool.files.ownership import SessionOwner
from holdfast.spool.files.record import FINAL_TYPES, Encoder
from holdfast.spool.files.recover import WINDOW
from holdfast.spool.files.session_markers import SessionFinal, read_released, write_final
from holdfast.spool.foreign.session_follower import SessionFollower
from holdfast.spool.maintainer import Maintainer
from holdfast.spool.metrics import SpoolMetrics
from holdfast.spool.outbox import Outbox
from holdfast.spool.reader import RecordBatch, SpoolReader
from holdfast.spool.session import OpenSession, oldest_unacked_age, open_session
from holdfast.spool.threads import SpoolThreads
from holdfast.spool.ticket import Ticket
from holdfast.spool.writer import Mode, Writer

_AGES_KEPT = 4_096


class Spool:
    """One session that is open for writing. Created by `Spool.open`; emit from any thread or task."""

    def __init__(
        self, opened: OpenSession, policy: SpoolPolicy, mode: Mode, clock: SpoolClock, seed: bytes, *, threads: bool
    ) -> None:
        log, status = opened.log, opened.status
        self._opened, self._log, self._clock, self._mode = opened, log, clock, mode
        spooled = log.view.spooled
        encoder = Encoder(log.paths.channel, log.paths.session, seed)
        flush_records = 1 if mode is Mode.ALWAYS else policy.flush_records_max
        self._outbox = Outbox(encoder, policy, clock, spooled, flush_records=flush_records)
        self._quota = ChannelQuota(log.disk, log.paths, policy)
        self.writer = Writer(
            outbox=self._outbox,
            log=log,
            quota=self._quota,
            policy=policy,
            clock=clock,
            mode=mode,
            durable=spooled,
        )
        self.maintainer = Maintainer(
            outbox=self._outbox,
            log=log,
            quota=self._quota,
            writer=self.writer,
            policy=policy,
            clock=clock,
            acked=opened.acked,
            marker_paths=opened.marker_paths,
            is_read_only=bool(status.losses) or status.is_foreign,
        )
        self.is_foreign = status.is_foreign
        """Another program may be writing it: it is only read (SP-OWN-001)."""
        self.is_ours = status.owner is SessionOwner.OURS
        """False also where it was adopted: its beginning is another program's."""
        self._follower = SessionFollower(log, self.writer.spooled, clock) if status.is_foreign else None
        self._reader = SpoolReader(log, lambda: read_released(log.disk, log.paths), status.losses)
        self._ack_lock = threading.Lock()
        self._ages: deque[tuple[int, int]] = deque(oldest_unacked_age(opened))
        self.writer.on_commit = self._record_age
        self.damage = status.damage
        """Why nothing may be written; empty where the session is not damaged."""
        self._is_closed = False
        last_record = status.tail.last_record if status.tail else None
        self._outbox.last_type = last_record.payload_type if last_record else ""
        self._begin(status.is_finished)
        self._threads = self._start_threads() if threads else None

    def _start_threads(self) -> SpoolThreads:
        work = self.writer if self._follower is None else self._follower
        if not self.damage and not self.is_foreign:
            self._outbox.prepare_memory()
        return SpoolThreads(self._outbox, work, self.maintainer, self._log.paths.session)

    @classmethod
    def open(
        cls,
        channel: str,
        session: str,
        *,
        root: Path | str,
        policy: SpoolPolicy | None = None,
        mode: Mode | str = Mode.GROUP,
        segment_bytes: int | None = None,
        disk: Disk | None = None,
        clock: SpoolClock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        threads: bool = True,
        window: int = WINDOW,
        markers: Path | str | None = None,
    ) -> Spool | Refused:
        """Open a session, new or old, and recover what a crash left of it.

        Refused: a bad id, another writer, a channel at its cap. A damaged session does open: `damage` has the reason,
        emits are refused, the records before the hole can be replayed. So does a session of another program, which may
        be writing it: `is_foreign` is true, its folder is only read, and acks are stored in the folder `markers`
        (SP-OWN-001). Raises Unavailable where the disk fails. `threads=False` is for tests: everything happens in
        `step`.
        """
        refusal = why_not_id("channel", channel) or why_not_id("session", session) or _why_not_size(segment_bytes)
        if refusal is not None:
            return refusal
        paths = SessionPaths(Path(root) / channel, channel, session)
        policy, clock, disk = policy or SpoolPolicy(), clock or SystemClock(), disk or RealDisk()
        try:
            opened = open_session(
                disk,
                paths,
                policy,
                clock.wall_ms(),
                segment_bytes=segment_bytes,
                window=window,
                markers=None if markers is None else Path(markers),
            )
        except OSError as fault:
            raise as_unavailable(fault) from fault
        if isinstance(opened, Refused):
            return opened
        try:
            return cls(opened, policy, Mode(mode), clock, random_bytes(16), threads=threads)
        except BaseException as fault:
            opened.log.abandon_active()
            if opened.lock is not None:
                disk.unlock(opened.lock)
            if isinstance(fault, OSError):
                raise as_unavailable(fault) from fault
            raise

    def _begin(self, is_finished: bool) -> None:
        """The folder is measured before the first emit; a session that accepts no more records needs no reserve."""
        if self.is_foreign:
            message = f"another program writes session {self.paths.session}, here it is only read"
            hint = "begin a session of your own, or let an operator adopt it: holdfast spool adopt"
            return self._outbox.refuse_all(Refused("SP-OWN-001", message, hint, "SessionForeign"))
        if self.damage:
            self._stop_writing(self.damage)
        elif is_finished:
            hint = "begin a new session"
            self._outbox.refuse_all(Refused("SP-RET-001", "the session is finished", hint, "SessionFinished"))
        self.writer.measure()
        if not self.damage and not is_finished:
            self.maintainer.begin()
        return None

    def _stop_writing(self, why: str) -> None:
        self.damage, self.maintainer.is_read_only = why, True
        hint = "begin a new session; see `holdfast spool verify` and `holdfast spool repair` for this one"
        self._outbox.refuse_all(Refused("SP-CRASH-002", why, hint, "SessionDamaged"))

    @property
    def paths(self) -> SessionPaths:
        """The channel, the session, and the paths of its files."""
        return self._log.paths

    # -------------------------------------------------------------------------------------------- sending

    def emit(self, payload_type: str, payload: object) -> Ticket | Refused:
        """Queue one record. It never blocks; the ticket is done when the record is spooled (SP-002)."""
        return self._outbox.emit(payload_type, payload)

    @property
    def emitted_sequence(self) -> int:
        """The last record that was emitted, spooled or not."""
        return self._outbox.last_sequence

    @property
    def spooled_sequence(self) -> int:
        """The last record that is durable (in mode `os`: written to the operating system)."""
        return self._log.view.spooled

    # -------------------------------------------------------------------------------------------- delivering

    @property
    def acked_sequence(self) -> int:
        """The highest ack that was received; its ticket is done when it is stored.

        What was dropped was acked, also where the ack cannot be read any more, unless it is known to be lost.
        """
        is_first_lost = bool(why_lost(self._opened.status.losses, 1, self.first_available - 1))
        return max(self.maintainer.ack_received, 0 if is_first_lost else self.first_available - 1)

    @property
    def first_available(self) -> int:
        """The oldest record that is still here; the next sequence where none is."""
        return self._log.view.first_available

    def ack(self, sequence: int) -> Ticket | Refused:
        """The receiver has everything up to `sequence`. An ack that is not higher changes nothing (SP-ACK-003).

        It is stored after a moment, or as soon as somebody waits for its ticket: a lost one is only sent again.
        """
        if sequence > self.spooled_sequence:
            message = f"ack {sequence} is above the last spooled record {self.spooled_sequence}"
            hint = "a protocol error: the receiver cannot have what was never sent"
            return Refused("SP-ACK-001", message, hint, "AckAhead")
        if self._opened.marker_paths is None:
            message = "an ack of another program's session is not stored in its folder"
            return Refused("SP-OWN-001", message, "open it with a folder for our own markers", "NoMarkerFolder")
        with self._ack_lock:
            if sequence > self.maintainer.ack_received:
                self.maintainer.receive_ack(sequence)
        return Ticket(sequence, self.maintainer.ack_stored)

    def keep_from(self, sequence: int | None) -> None:
        """Keep this record and all after it even when they are acked; None keeps nothing longer."""
        self.maintainer.keep_from = sequence

    def reconcile_ack(self, receiver_ack: int | None) -> int | Refused:
        """After which record to replay, given the receiver's answer to the hello (SP-ACK-004).

        The receiver is authoritative. None is for a v0.1 receiver, which answers 0 whatever it has: our own ack counts.
        """
        own = self.acked_sequence
        if receiver_ack is None:
            return own
        if receiver_ack >= own:
            stored = self.ack(receiver_ack)
            return stored if isinstance(stored, Refused) else receiver_ack
        if receiver_ack + 1 >= self.first_available:
            return receiver_ack
        message = f"the receiver has records up to {receiver_ack}, the oldest here is {self.first_available}"
        hint = "the receiver has lost what it acked; an operator must decide"
        return Refused("SP-ACK-004", message, hint, "AckGap")

    def batches(self, after: int | None = None) -> Iterator[RecordBatch]:
        """Spooled records above `after`, many at a time; above the ack by default (SP-ACK-002)."""
        try:
            yield from self._reader.batches(self.acked_sequence if after is None else after)
        except Corrupt as hole:
            if hole.rule == "SP-CRASH-002":
                self._stop_writing(hole.message)
            raise
        except OSError as fault:
            raise as_unavailable(fault, "SP-005") from fault

    def replay(self, after: int | None = None) -> Iterator[bytes]:
        """`batches` one record at a time: raw lines without their ends. It stops at the last record spooled by then."""
        for batch in self.batches(after):
            yield from batch.lines

    # -------------------------------------------------------------------------------------------- maintenance

    def compact(self) -> Ticket:
        """Drop what is acked now, even where it frees little. The ticket is done when the compaction is."""
        with self._ack_lock:
            self.maintainer.compactions_requested += 1
            ticket = Ticket(self.maintainer.compactions_requested, self.maintainer.compactions_done)
        self._outbox.maintainer_wakeup.notify()
        return ticket

    def step(self) -> None:
        """Without threads: a step of the writer, one of the maintainer, and another one of the writer if it is due."""
        if self._follower is not None:
            self._follower.step()
        self.writer.step()
        self.maintainer.step()
        if self.writer.due_in_ms() == 0:
            self.writer.step()

    def metrics(self) -> SpoolMetrics:
        """All counters and levels; it reads no disk."""
        writer, spooled, acked = self.writer, self.spooled_sequence, self.acked_sequence
        return SpoolMetrics(
            spooled_sequence=spooled,
            acked_sequence=acked,
            waiting_records=self._outbox.waiting,
            unacked_records=max(0, spooled - acked),
            oldest_unacked_age_ms=self._oldest_age_ms(acked),
            session_bytes=self._quota.session_bytes + writer.unmeasured_bytes,
            channel_bytes=self._quota.used_bytes + writer.unmeasured_bytes,
            channel_bytes_max=self._quota.channel_bytes_max,
            disk_free_bytes=self._quota.free_bytes,
            commits=writer.commit_records.count,
            commit_records=writer.commit_records,
            sync_us=writer.sync_us,
            refusals=self._outbox.refusals.copy(),
            replays=self._reader.replays,
            replayed_records=self._reader.replayed_records,
            quarantined_records=self._opened.quarantined,
            compactions=writer.compactions,
            failures=writer.failures + self.maintainer.failures,
        )

    def _record_age(self, last: int, now_ms: int) -> None:
        """When a commit began, for the age of its records. Beyond a number of entries the newest share one."""
        if len(self._ages) < _AGES_KEPT:
            self._ages.append((last, now_ms))
        else:
            self._ages[-1] = (last, self._ages[-1][1])

    def _oldest_age_ms(self, acked: int) -> int:
        ages = self._ages
        while ages and ages[0][0] <= acked:
            ages.popleft()
        return max(0, self._clock.wall_ms() - ages[0][1]) if ages else 0

    # -------------------------------------------------------------------------------------------- ending

    def close(self, *, final: bool = False) -> Refused | None:
        """Spool what waits, store the ack and release the lock. `final` markers the session as finished (SP-RET-001).

        A session can be finished only after a BLOCK_FENCE or CHANNEL_TERMINATED. Otherwise it is closed all the same,
        kept as unfinished, and that is the refusal. Raises Unavailable where records could not be spooled.
        """
        if self._is_closed:
            return None
        self._is_closed = True
        self._outbox.refuse_all(Refused("SP-002", "the spool is closed", "open it again", "SpoolClosed"))
        try:
            self._drain()
            return self._finish() if final else None
        except OSError as fault:
            raise as_unavailable(fault) from fault
        finally:
            self._release()

    async def aclose(self, *, final: bool = False) -> Refused | None:
        """`close` without blocking the event loop."""
        return await asyncio.to_thread(self.close, final=final)

    def _drain(self) -> None:
        if self._threads is not None:
            with suppress(Unavailable):  # the writer's fault is raised below, when its threads have ended
                if self._outbox.waiting:
                    self.writer.spooled.wait(self._outbox.last_sequence, None)
            self._threads.stop()
        if self._follower is not None:
            self.maintainer.step()
            return
        while self.writer.step():
            pass
        self.maintainer.step()
        self.writer.step()
        if self.writer.fault is not None:
            raise self.writer.fault
        if self._log.active is not None and not self.damage:
            if self._mode is Mode.OS:
                self._log.disk.sync(self._log.active.handle)
            self._log.seal_active()

    def _finish(self) -> Refused | None:
        last_type = self._outbox.last_type
        if self.damage or last_type not in FINAL_TYPES:
            reason = "damaged" if self.damage else f"its last record is {last_type or 'none'}"
            hint = "end it with BLOCK_FENCE or CHANNEL_TERMINATED, or let an operator seal it: holdfast spool seal"
            return Refused("SP-RET-001", f"the session is kept as unfinished: {reason}", hint, "NotFinal")
        write_final(
            self._log.disk, self._log.paths, SessionFinal(self.spooled_sequence, "closed"), self._clock.wall_ms()
        )
        return None

    def _release(self) -> None:
        self._log.abandon_active()
        try:
            if self._follower is not None:
                self._follower.close()
            else:
                remove_file(self._log.disk, self._log.paths.reserve)
        except OSError as fault:
            raise as_unavailable(fault) from fault
        finally:
            if self._opened.lock is not None:
                self._log.disk.unlock(self._opened.lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _why_not_size(segment_bytes: int | None) -> Refused | None:
    if segment_bytes is None or segment_bytes > 0:
        return None
    return Refused(
        "SEC-001", f"segment_bytes is {segment_bytes}", "a positive number, or none for one plain file", "InvalidParams"
    )
