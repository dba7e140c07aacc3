"""The durable outbox as its user sees it: open, emit, wait, replay, ack, close."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.core.policy.knobs import SpoolPolicy
from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.spool import seek
from holdfast.spool.clock import Clock, SystemClock
from holdfast.spool.disk import Disk, RealDisk
from holdfast.spool.keeper import Keeper
from holdfast.spool.metrics import Metrics
from holdfast.spool.names import Place, why_not_id
from holdfast.spool.outbox import Outbox
from holdfast.spool.reader import Batch, Reader
from holdfast.spool.record import FINALISING, Encoder
from holdfast.spool.recover import WINDOW
from holdfast.spool.room import Room
from holdfast.spool.seek import File
from holdfast.spool.session import Opened, open_session
from holdfast.spool.ticket import Ticket
from holdfast.spool.whole import Final, read_released, remove, unavailable, write_final
from holdfast.spool.workers import Workers
from holdfast.spool.writer import Mode, Writer

_AGES_KEPT = 4_096


class Spool:
    """One session that is open for writing. Made by `Spool.open`; emit from any thread or task."""

    def __init__(
        self, opened: Opened, policy: SpoolPolicy, mode: Mode, clock: Clock, seed: bytes, *, threads: bool
    ) -> None:
        log, found = opened.log, opened.found
        self._opened, self._log, self._clock, self._mode = opened, log, clock, mode
        spooled = log.view.spooled
        encoder = Encoder(log.place.channel, log.place.session, seed)
        self._outbox = Outbox(encoder, policy, clock, spooled, flush_records=policy.flush_records_max)
        self._room = Room(log.disk, log.place, policy)
        self.writer = Writer(self._outbox, log, self._room, policy, clock, mode, spooled)
        self.keeper = Keeper(self._outbox, log, self._room, self.writer, policy, clock, found.acked)
        self._reader = Reader(log, lambda: read_released(log.disk, log.place))
        self._ack_lock = threading.Lock()
        self._ages: deque[tuple[int, int]] = deque(_first_age(opened))
        self.writer.on_commit = self._note_age
        self.damage = opened.damage
        """Why nothing may be written here; empty where the session is sound."""
        self._is_closed = False
        last_seen = found.tail.last_seen if found.tail else None
        self._outbox.last_type = last_seen.payload_type if last_seen else ""
        self._begin(found.is_finished)
        self._workers = Workers(self._outbox, self.writer, self.keeper, log.place.session) if threads else None

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
        clock: Clock | None = None,
        chance: Callable[[int], bytes] = os.urandom,
        threads: bool = True,
        window: int = WINDOW,
    ) -> Spool | Refused:
        """Open a session, new or old, and recover what a crash left of it.

        Refused: a bad id, another writer, a channel at its cap. A damaged session does open: `damage` says why, emits
        are refused, the records before the hole can be replayed. Raises Unavailable where the disk fails.
        `threads=False` is for tests: nothing happens but in `step`.
        """
        no = why_not_id("channel", channel) or why_not_id("session", session) or _why_not_size(segment_bytes)
        if no is not None:
            return no
        place = Place(Path(root) / channel, channel, session)
        policy, clock, disk = policy or SpoolPolicy(), clock or SystemClock(), disk or RealDisk()
        try:
            opened = open_session(disk, place, policy, clock.wall_ms(), segment_bytes=segment_bytes, window=window)
        except OSError as fault:
            raise unavailable(fault) from fault
        if isinstance(opened, Refused):
            return opened
        try:
            return cls(opened, policy, Mode(mode), clock, chance(16), threads=threads)
        except BaseException as fault:
            opened.log.leave_tape()
            disk.unlock(opened.lock)
            if isinstance(fault, OSError):
                raise unavailable(fault) from fault
            raise

    def _begin(self, is_finished: bool) -> None:
        """The cap is measured before the first emit; a session that takes no more records needs no reserve."""
        if self.damage:
            self._stop_writing(self.damage)
        elif is_finished:
            hint = "begin a new session"
            self._outbox.refuse_from_now_on(Refused("SP-RET-001", "the session is finished", hint, "SessionFinished"))
        self.writer.measure()
        if not self.damage and not is_finished:
            self.keeper.begin()

    def _stop_writing(self, why: str) -> None:
        self.damage = why
        hint = "begin a new session; `holdfast spool verify` and `repair` look after this one"
        self._outbox.refuse_from_now_on(Refused("SP-CRASH-002", why, hint, "SessionDamaged"))

    @property
    def place(self) -> Place:
        """Whose session it is, and where its files are."""
        return self._log.place

    # -------------------------------------------------------------------------------------------- sending

    def emit(self, payload_type: str, payload: object) -> Ticket | Refused:
        """Hand one record over. It never blocks; the ticket tells when the record is spooled (SP-002)."""
        return self._outbox.emit(payload_type, payload)

    @property
    def spooled_sequence(self) -> int:
        """The last record that is durable (in mode `os`: handed to the operating system)."""
        return self._log.view.spooled

    # -------------------------------------------------------------------------------------------- delivering

    @property
    def acked_sequence(self) -> int:
        """The highest ack that was received; its ticket tells when it is stored."""
        return max(self.keeper.ack_wanted, self.first_available - 1)

    @property
    def first_available(self) -> int:
        """The oldest record that is still here; the next one where none is."""
        return self._log.view.first_available

    def ack(self, sequence: int) -> Ticket | Refused:
        """The receiver has everything up to here. One that is not higher than the last changes nothing (SP-ACK-003)."""
        if sequence > self.spooled_sequence:
            says = f"ack {sequence} is above the last spooled record {self.spooled_sequence}"
            hint = "a protocol error: the receiver cannot have what was never sent"
            return Refused("SP-ACK-001", says, hint, "AckAhead")
        with self._ack_lock:
            if sequence > self.keeper.ack_wanted:
                self.keeper.ack_wanted = sequence
                self._outbox.keeper.give()
        return Ticket(sequence, self.keeper.acked)

    def agree(self, told: int | None) -> int | Refused:
        """After which record to replay, given the receiver's answer to the hello (SP-ACK-004).

        The receiver is the authority. None is for a v0.1 receiver, which says 0 whatever it has: our own ack holds.
        """
        own = self.acked_sequence
        if told is None:
            return own
        if told >= own:
            stored = self.ack(told)
            return stored if isinstance(stored, Refused) else told
        if told + 1 >= self.first_available:
            return told
        says = f"the receiver has records up to {told}, the oldest here is {self.first_available}: the rest was acked"
        return Refused("SP-ACK-004", says, "the receiver has lost what it acked; an operator must decide", "AckGap")

    def batches(self, after: int | None = None) -> Iterator[Batch]:
        """Spooled records above `after`, many at a time; above the ack, if none is given (SP-ACK-002)."""
        try:
            yield from self._reader.batches(self.acked_sequence if after is None else after)
        except Corrupt as hole:
            if hole.rule == "SP-CRASH-002":
                self._stop_writing(hole.says)
            raise
        except OSError as fault:
            raise unavailable(fault, "SP-005") from fault

    def replay(self, after: int | None = None) -> Iterator[bytes]:
        """The same one by one: raw lines without their ends. It stops at the last record that is spooled by then."""
        for batch in self.batches(after):
            yield from batch.lines

    # -------------------------------------------------------------------------------------------- keeping

    def compact(self) -> Ticket:
        """Drop what is acked now, whether it is worth it or not. The ticket is reached when it is done."""
        with self._ack_lock:
            self.keeper.asked += 1
            ticket = Ticket(self.keeper.asked, self.keeper.answered)
        self._outbox.keeper.give()
        return ticket

    def step(self) -> None:
        """Without threads: what the writer would do now, then the keeper, then what the keeper asks of the writer."""
        self.writer.step()
        self.keeper.step()
        if self.writer.due_in_ms() == 0:
            self.writer.step()

    def metrics(self) -> Metrics:
        """A reading of all counters; it touches no disk."""
        writer, spooled, acked = self.writer, self.spooled_sequence, self.acked_sequence
        return Metrics(
            spooled_sequence=spooled,
            acked_sequence=acked,
            waiting_records=self._outbox.waiting,
            unacked_records=max(0, spooled - acked),
            oldest_unacked_age_ms=self._oldest_age_ms(acked),
            session_bytes=self._room.session_used + writer.grown,
            channel_bytes=self._room.used + writer.grown,
            commits=writer.commit_records.count,
            commit_records=writer.commit_records,
            sync_us=writer.sync_us,
            refusals=self._outbox.refusals.copy(),
            replays=self._reader.replays,
            replayed_records=self._reader.replayed,
            quarantined_records=self._opened.quarantined,
            compactions=writer.compactions,
            failures=writer.failures + self.keeper.failures,
        )

    def _note_age(self, last: int, now_ms: int) -> None:
        """When a commit began: the age of its records. When there are very many, the newest share one entry."""
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
        """Spool what waits, store the ack and let go. `final` says that the session is finished (SP-RET-001).

        A session is finished only after a BLOCK_FENCE or CHANNEL_TERMINATED: otherwise it is closed all the same, the
        refusal says that it is kept as unfinished. Raises Unavailable where records could not be spooled.
        """
        if self._is_closed:
            return None
        self._is_closed = True
        self._outbox.refuse_from_now_on(Refused("SP-002", "the spool is closed", "open it again", "SpoolClosed"))
        try:
            self._drain()
            return self._finish() if final else None
        except OSError as fault:
            raise unavailable(fault) from fault
        finally:
            self._let_go()

    async def aclose(self, *, final: bool = False) -> Refused | None:
        """The same without blocking the event loop."""
        return await asyncio.to_thread(self.close, final=final)

    def _drain(self) -> None:
        if self._workers is not None:
            with suppress(Unavailable):  # the writer's fault, which is raised below: first its threads end
                if self._outbox.waiting:
                    self.writer.spooled.wait(self._outbox.last, None)
            self._workers.end()
        while self.writer.step():
            pass
        self.keeper.step()
        self.writer.step()
        if self.writer.fault is not None:
            raise self.writer.fault
        if self._log.tape is not None and not self.damage:
            if self._mode is Mode.OS:
                self._log.disk.sync(self._log.tape.handle)
            self._log.seal_tape()

    def _finish(self) -> Refused | None:
        last_type = self._outbox.last_type
        if self.damage or last_type not in FINALISING:
            says = "damaged" if self.damage else f"its last record is {last_type or 'none'}"
            hint = "end it with BLOCK_FENCE or CHANNEL_TERMINATED, or let an operator seal it: holdfast spool seal"
            return Refused("SP-RET-001", f"the session is kept as unfinished: {says}", hint, "NotFinal")
        write_final(self._log.disk, self._log.place, Final(self.spooled_sequence, "closed"), self._clock.wall_ms())
        return None

    def _let_go(self) -> None:
        self._log.leave_tape()
        try:
            remove(self._log.disk, self._log.place.reserve)
        except OSError as fault:
            raise unavailable(fault) from fault
        finally:
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


def _first_age(opened: Opened) -> list[tuple[int, int]]:
    """The oldest record that is not acked, with its time, as it stands in the file."""
    log, found = opened.log, opened.found
    oldest = max(found.acked + 1, log.view.first_available)
    where = log.open_for(oldest) if oldest <= log.view.spooled else None
    if where is None or (handle := where[3]) is None:
        return []
    file, end = File(log.disk, handle, log.place.channel, log.place.session), where[2]
    try:
        seen = seek.seen_at(file, seek.find(file, oldest, end), end)
        when = None if seen is None else datetime.fromisoformat(seen.emitted_utc).timestamp()
    except (ValueError, OverflowError):  # older senders write what they like; also a year that no calendar here has
        when = None
    finally:
        log.disk.close(handle)
    return [] if when is None else [(log.view.spooled, int(when * 1_000))]
