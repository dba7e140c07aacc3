"""Undelivered sessions of earlier processes: delivered oldest first, each on its own stream (EVD-004)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.ports import Clock
from holdfast.shipping.session_sender import SessionSender
from holdfast.spool import Spool, SpoolPolicy, channel
from holdfast.spool.files.disk import RealDisk

OpenSender = Callable[[str, Spool], SessionSender]
_log = structlog.get_logger()


class Backlog:
    """The backlog of one channel, oldest first; a session stays in it until it is closed."""

    def __init__(
        self,
        root: Path,
        channel_id: str,
        open_sender: OpenSender,
        clock: Clock,
        policy: SpoolPolicy | None,
        markers: Path | None = None,
    ) -> None:
        """`markers`: where acks of other programs' sessions are stored."""
        self._root, self._channel, self._policy, self._markers = root, channel_id, policy, markers
        self._open_sender, self._clock = open_sender, clock
        self.senders: list[SessionSender] = []
        self.keep_open: Callable[[SessionSender], bool] = lambda _: False
        """Whether somebody needs a delivered session, and closes it later."""

    def open(self, session: str) -> Spool | Refused:
        return Spool.open(self._channel, session, root=self._root, policy=self._policy, markers=self._markers)

    async def add_session(self, session: str) -> SessionSender | None:
        """Add a session; None where it cannot be opened, which is logged and does not stop the others."""
        try:
            spool = await asyncio.to_thread(self.open, session)
        except Unavailable as fault:
            _log.error("backlog_session_not_opened", session=session, reason=str(fault))
            return None
        if isinstance(spool, Refused):
            log = _log.info if spool.name == "SessionLocked" else _log.error  # a locked one is delivered elsewhere
            log("backlog_session_not_opened", session=session, reason=str(spool))
            return None
        sender = self._open_sender(session, spool)
        self.senders.append(sender)
        return sender

    async def run(self, live_session: Callable[[], str]) -> None:
        """Until none is left. A stuck session is logged, blocks no other, and is retried at the next start."""
        while self.senders:
            sender = self.senders[0]
            await sender.run(self._clock, until_delivered=True)
            if not sender.stuck_reason:
                records = sender.spool.spooled_sequence
                _log.info("backlog_session_delivered", session=sender.session, records=records)
            self.senders.remove(sender)
            if not self.keep_open(sender):
                await self._close_sender(sender, live_session())

    async def _close_sender(self, sender: SessionSender, live_session: str) -> None:
        """A session that is delivered and finished is deleted; an unfinished one is kept (SP-RET-001)."""
        try:
            await sender.spool.aclose()
            folder = self._root / self._channel
            await asyncio.to_thread(
                channel.reclaim, RealDisk(), folder, self._clock.wall_ms(), except_session=live_session
            )
        except (Unavailable, OSError) as fault:
            _log.warning("backlog_session_not_closed", session=sender.session, reason=str(fault))

    async def close(self) -> None:
        """Close what is left, for the next start."""
        for sender in self.senders:
            try:
                await sender.spool.aclose()
            except Unavailable as fault:
                _log.warning("backlog_session_not_closed", session=sender.session, reason=str(fault))
