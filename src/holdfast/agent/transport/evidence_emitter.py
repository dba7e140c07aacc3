"""The agent's evidence: one session per process, spooled before it is sent, delivered until it is acked (EVD-005).

The channel is the provider's id. Undelivered sessions of earlier processes are replayed beside the live one, oldest
first (EVD-004).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.ports import Clock
from holdfast.shipping.backlog import Backlog, OpenSender
from holdfast.shipping.session_sender import SessionSender
from holdfast.spool import Spool, SpoolPolicy, Ticket, channel
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.files.record import CHANNEL_TERMINATED

DELIVERED_MAX: Final = 16
"""Delivered sessions that are read at a start, the newest ones."""
RETRY_MS: Final = 200
"""The pause before the next try where the spool refuses a record."""
SESSION_OVER_NAMES: Final = frozenset({"SessionEnded", "SessionDamaged", "SessionFinished"})
"""Refusals after which only another session accepts records."""
_log = structlog.get_logger()


class SpooledAt(msgspec.Struct, frozen=True):
    """Where a record is spooled."""

    session: str
    sequence: int


class EmittedRecord(msgspec.Struct, frozen=True):
    """A record that is queued, and its ticket."""

    at: SpooledAt
    ticket: Ticket


LeaseRecord = tuple[str, dict[str, Any]]
"""The type and the payload of a record."""
OnRecord = Callable[[SpooledAt, bytes], None]


class EvidenceEmitter:
    """Emits into the live session and delivers all sessions."""

    def __init__(
        self, root: Path, channel_id: str, open_sender: OpenSender, clock: Clock, policy: SpoolPolicy | None = None
    ) -> None:
        self._root, self._channel = root, channel_id
        self._open_sender, self._clock = open_sender, clock
        self._live: SessionSender | None = None
        self.backlog = Backlog(root, channel_id, open_sender, clock, policy)
        self.backlog.keep_open = self._keep_if_held
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._opening = asyncio.Lock()
        self._left: dict[str, Spool] = {}
        """Delivered sessions that are still open: a lease may need what they hold."""
        self._held: dict[SpooledAt, None] = {}
        """Records that are kept although they are acked, in the order of their sequences."""
        self._is_delivering = False
        self._logged_reason = ""
        """Why the last attempt to open a session failed."""

    @property
    def is_ready(self) -> bool:
        """There is a session that accepts records: without one no lease is accepted, and no slots are offered."""
        return self._live is not None and not self._live.spool.maintainer.is_full

    def open_sessions(self) -> list[tuple[str, Spool]]:
        """The sessions that are being delivered, the live one first."""
        senders = ([] if self._live is None else [self._live]) + self.backlog.senders
        return [(sender.session, sender.spool) for sender in senders]

    @property
    def live_session(self) -> str:
        return self._live.session if self._live is not None else ""

    # -------------------------------------------------------------------------------------------- opening

    async def open(self, on_record: OnRecord = lambda _, __: None) -> None:
        """Open the undelivered sessions, and begin a new one. Unavailable where the disk fails.

        `on_record` gets the spooled records of the undelivered sessions, and those of the newest others: a process that
        was killed may have left several, also ended ones, where its disk was full. What is delivered and ended is
        deleted by `delete_ended`, when it is known which of it a lease still needs.
        """
        undelivered, delivered = await asyncio.to_thread(self._left_sessions)
        for session in undelivered:
            sender = await self.backlog.add_session(session)
            if sender is not None:
                await asyncio.to_thread(_read_records, session, sender.spool, on_record)
        for session in delivered[-DELIVERED_MAX:]:
            await asyncio.to_thread(self._read_delivered, session, on_record)
        await self._open_session()

    def _left_sessions(self) -> tuple[list[str], list[str]]:
        """Sessions with records to deliver, and delivered ones, oldest first. Of these, one without an end is kept and
        logged: only a crash leaves it so."""
        disk, folder = RealDisk(), self._root / self._channel
        if not folder.exists():
            return [], []
        statuses = [
            channel.read_status(disk, SessionPaths(folder, self._channel, name))
            for name in channel.list_sessions(disk, folder)
        ]
        delivered = [status for status in statuses if status.acked >= status.last]
        if endless := [status for status in delivered if not status.is_reclaimable]:
            hint = f"holdfast spool seal {folder}/SESSION.spool.jsonl --yes"
            _log.info("sessions_without_end_kept", rule="SP-RET-001", sessions=len(endless), hint=hint)
        undelivered = [status.paths.session for status in statuses if status.acked < status.last]
        return undelivered, [status.paths.session for status in delivered]

    def _read_delivered(self, session: str, on_record: OnRecord) -> None:
        """A session that is open is not deleted."""
        try:
            spool = self.backlog.open(session)
        except Unavailable as fault:
            spool = Refused(fault.rule, fault.message, fault.hint)
        if isinstance(spool, Refused):
            _log.warning("session_not_indexed", session=session, reason=str(spool))
            return
        self._left[session] = spool
        _read_records(session, spool, on_record)

    async def delete_ended(self, needed: Collection[str] = ()) -> None:
        """Close the delivered sessions of earlier processes, and delete those with an end. What leases need stays open
        until this process ends (EVD-006)."""
        for session in self._left.keys() - set(needed):
            await self._left.pop(session).aclose()
        folder = self._root / self._channel
        if folder.exists():
            await asyncio.to_thread(
                channel.reclaim, RealDisk(), folder, self._clock.wall_ms(), except_session=self.live_session
            )

    async def _open_session(self) -> None:
        session = await asyncio.to_thread(self._next_session)
        spool = await asyncio.to_thread(self.backlog.open, session)
        if isinstance(spool, Refused):
            return self._log_unavailable(str(spool))
        self._logged_reason = ""
        self._live = self._open_sender(session, spool)
        if self._is_delivering:
            self._start_live()
        return None

    def _log_unavailable(self, reason: str) -> None:
        """Once while the reason stays the same: it is retried several times a second."""
        if reason != self._logged_reason:
            _log.error("evidence_session_not_opened", reason=reason, hint="no leases are accepted meanwhile")
        self._logged_reason = reason

    def _next_session(self) -> str:
        """Session names sort by when they began, also where the clock was set back."""
        folder = self._root / self._channel
        names = channel.list_sessions(RealDisk(), folder) if folder.exists() else []
        last = max((int(name) for name in names if name.isdigit()), default=0)
        return f"{max(self._clock.wall_ms(), last + 1):015d}"

    # -------------------------------------------------------------------------------------------- emitting

    def try_emit(self, payload_type: str, payload: dict[str, Any]) -> EmittedRecord | None:
        """Emit one record at once; None where the spool refuses it now."""
        live = self._live
        ticket = live.spool.emit(payload_type, payload) if live is not None else None
        if live is not None and isinstance(ticket, Ticket):
            return EmittedRecord(SpooledAt(live.session, ticket.sequence), ticket)
        if live is not None and isinstance(ticket, Refused) and ticket.name in SESSION_OVER_NAMES:
            self._replace_in_background(live)
        return None

    async def emit(self, payload_type: str, payload: dict[str, Any]) -> EmittedRecord:
        """Emit one record. It waits only where the spool refuses it: no evidence is dropped."""
        while (emitted := self.try_emit(payload_type, payload)) is None:
            if self._live is None:
                await self._replace_session(None)
            else:
                await self._clock.sleep(RETRY_MS)
        return emitted

    async def emit_spooled(self, payload_type: str, payload: dict[str, Any]) -> SpooledAt:
        """Emit one record, and return when it is spooled (SP-002)."""
        records = [(payload_type, payload)]
        return await self.wait_spooled(records, await self.emit_all(records))

    async def emit_all(self, records: Sequence[LeaseRecord]) -> list[EmittedRecord]:
        """Emit records that belong together; nothing is emitted between them unless the spool refuses one."""
        return [await self.emit(*record) for record in records]

    async def wait_spooled(self, records: Sequence[LeaseRecord], emitted: list[EmittedRecord]) -> SpooledAt:
        """Return when all are spooled, and where the first one is. What a failing spool has lost is emitted again."""
        first: SpooledAt | None = None
        while True:
            try:
                await emitted[-1].ticket
                return first or emitted[0].at
            except Unavailable as fault:
                _log.error("spooling_failed", session=emitted[0].at.session, reason=str(fault), hint="it is retried")
            if first is None and emitted[0].ticket.is_durable:
                first = emitted[0].at
            lost = [record for record, each in zip(records, emitted, strict=True) if not each.ticket.is_durable]
            if not lost and first is not None:
                return first
            records, emitted = lost, await self.emit_all(lost)

    def _replace_in_background(self, ended: SessionSender) -> None:
        if "replacing" not in self._tasks:
            self._spawn("replacing", self._replace_session(ended))
            self._tasks["replacing"].add_done_callback(lambda _: self._tasks.pop("replacing", None))

    # -------------------------------------------------------------------------------------------- holding

    def hold(self, at: SpooledAt) -> None:
        """Keep this record although it is acked: a lease needs what it carries (EVD-006)."""
        self._held[at] = None
        self._apply_holds(at.session)

    def release(self, at: SpooledAt) -> None:
        """The record is not needed any more."""
        self._held.pop(at, None)
        self._apply_holds(at.session)

    def _keep_if_held(self, sender: SessionSender) -> bool:
        """A delivered session with an end would be deleted when it is closed, and a kill would lose its offers."""
        is_held = any(at.session == sender.session for at in self._held)
        if is_held:
            self._left[sender.session] = sender.spool
        return is_held

    def _apply_holds(self, session: str) -> None:
        for sender in [self._live, *self.backlog.senders]:
            if sender is not None and sender.session == session:
                held = (at.sequence for at in self._held if at.session == session)
                sender.spool.keep_from(next(held, None))

    async def _replace_session(self, ended: SessionSender | None) -> None:
        """Open another session; the ended one is still delivered."""
        async with self._opening:
            if self._live is not ended:
                return  # another task has replaced it
            if ended is not None:
                self._live = None
                await self._end_task(ended.session)
                self.backlog.senders.append(ended)
                if self._is_delivering and "backlog" not in self._tasks:
                    self._spawn("backlog", self._run_backlog())
            try:
                await self._open_session()
            except Unavailable as fault:
                self._log_unavailable(str(fault))
            self._ensure_session_task()
            if self._live is None:
                await self._clock.sleep(RETRY_MS)

    def _ensure_session_task(self) -> None:
        """SP-RET-003: without a session no lease is accepted, so no emit would open one: a task does."""
        if self._live is None and self._is_delivering and "opening" not in self._tasks:
            self._spawn("opening", self._open_until_live())

    async def _open_until_live(self) -> None:
        """Retry until a full channel has space, or the disk works again."""
        while self._live is None:
            await self._replace_session(None)
        del self._tasks["opening"]

    # -------------------------------------------------------------------------------------------- delivering

    def start_delivery(self) -> None:
        """Start, once the provider is registered. A repeat has no effect."""
        if self._is_delivering:
            return
        self._is_delivering = True
        self._start_live()
        self._ensure_session_task()
        if self.backlog.senders:
            self._spawn("backlog", self._run_backlog())

    def _start_live(self) -> None:
        if self._live is not None:
            self._spawn(self._live.session, self._live.run(self._clock))

    async def _run_backlog(self) -> None:
        await self.backlog.run(lambda: self.live_session)
        del self._tasks["backlog"]

    async def wait_delivered(self, record: SpooledAt) -> None:
        """Return when the node has this record, or at once where its session is not open any more."""
        for sender in [self._live, *self.backlog.senders]:
            if sender is not None and sender.session == record.session:
                await sender.wait_acked(record.sequence)

    # -------------------------------------------------------------------------------------------- ending

    async def close(self, reason: str, flush_ms: int) -> None:
        """Emit CHANNEL_TERMINATED, wait up to `flush_ms` for its ack, and close all sessions.

        A full channel is terminated already, and accepts nothing before it gets acks. Without delivery there are none.
        """
        live = self._live
        if live is not None:
            payload = {"termination_utc_ms": self._clock.wall_ms(), "reason": reason, "detail": ""}
            try:
                async with asyncio.timeout(flush_ms / 1000):
                    terminated_at = await self.emit_spooled(CHANNEL_TERMINATED, payload)
                    if self._is_delivering:
                        await self.wait_delivered(terminated_at)
            except TimeoutError:
                unacked = live.spool.spooled_sequence - live.spool.acked_sequence
                _log.warning("evidence_unacked", records=unacked, hint="it is sent at the next start")
        for name in list(self._tasks):
            await self._end_task(name)
        await self.backlog.close()
        for spool in self._left.values():  # the next start reads and deletes them
            await spool.aclose()
        if self._live is not None:
            refusal = await self._live.spool.aclose(final=True)
            if refusal is not None:
                _log.warning("session_not_finished", reason=str(refusal))

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=f"evidence {name}")

    async def _end_task(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _read_records(session: str, spool: Spool, on_record: OnRecord) -> None:
    try:
        for sequence, line in enumerate(spool.replay(spool.first_available - 1), spool.first_available):
            on_record(SpooledAt(session, sequence), line)
    except (Corrupt, Unavailable) as fault:  # its delivery reports it as an error
        _log.warning("session_not_indexed", session=session, reason=str(fault))
