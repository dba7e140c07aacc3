"""Ships everything below a root to a node or a v0.1 receiver: sessions of ours, and those of other programs.

A session of ours is opened with its lock. One of another program is only read, and up to where it is delivered is
stored in a folder of our own (SP-OWN-001). The channels are shipped side by side, the sessions of a channel oldest
first (EVD-004).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from holdfast.ports import Clock
from holdfast.shipping.background_shipper import open_session_sender
from holdfast.shipping.backlog import Backlog
from holdfast.shipping.orphan_comparison import FinishingStream
from holdfast.shipping.sender_metrics import SenderMetrics
from holdfast.shipping.session_sender import ACK_STALL_MS, OPERATOR_REFUSALS, SessionSender
from holdfast.spool import Spool
from holdfast.spool.channel import SessionStatus, list_sessions, oldest_first, read_status
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.names import SessionPaths, why_not_id
from holdfast.spool.files.session_markers import read_ack

RESCAN_MS: Final = 1_000
STUCK_RETRY_MS: Final = 60_000


class SessionOutcome(msgspec.Struct, frozen=True):
    """How far a session is delivered."""

    channel: str
    session: str
    spooled: int
    delivered: int
    reason: str = ""
    """Why it is not delivered though the receiver answers; empty where it is, or where there was no time."""

    @property
    def is_delivered(self) -> bool:
        return not self.reason and self.delivered >= self.spooled


class RootShipper:
    """All sessions below one root."""

    def __init__(
        self,
        root: Path,
        markers: Path,
        open_stream: Callable[[], FinishingStream],
        clock: Clock,
        *,
        ack_stall_ms: int = ACK_STALL_MS,
    ) -> None:
        """`markers`: the folder for our acks of other programs' sessions."""
        self._root, self._markers, self._open_stream, self._clock = root, markers, open_stream, clock
        self._ack_stall_ms = ack_stall_ms
        self.metrics = SenderMetrics()
        self.senders: list[SessionSender] = []
        """Those of the sessions that are being shipped."""
        self._stuck: dict[SessionPaths, int] = {}
        """When a stuck session is tried again, by the monotonic clock."""

    @property
    def open_spools(self) -> list[Spool]:
        return [sender.spool for sender in self.senders]

    async def ship(self, on_outcome: Callable[[SessionOutcome], None]) -> None:
        """Everything that is there now, until it is delivered or stuck. Cancelled, it ends after what it has begun."""
        async with asyncio.TaskGroup() as channels:
            for channel in await asyncio.to_thread(RealDisk().folders, self._root):
                channels.create_task(self._ship_channel(channel, on_outcome))

    async def follow(self, on_outcome: Callable[[SessionOutcome], None]) -> None:
        """For ever: what is there, and what comes."""
        while True:
            await self.ship(on_outcome)
            await self._clock.sleep(RESCAN_MS)

    async def _ship_channel(self, channel: str, on_outcome: Callable[[SessionOutcome], None]) -> None:
        settings = self._open_stream, self.metrics, self._ack_stall_ms
        open_sender = partial(open_session_sender, *settings, channel, gives_up_on=OPERATOR_REFUSALS)
        backlog = Backlog(self._root, channel, open_sender, self._clock, None, self._markers)
        try:
            for status in await asyncio.to_thread(self._undelivered, channel):
                if self._clock.monotonic_ms() >= self._stuck.get(status.paths, 0):
                    on_outcome(await self._ship_session(backlog, status))
        finally:
            await backlog.close()

    async def _ship_session(self, backlog: Backlog, status: SessionStatus) -> SessionOutcome:
        paths = status.paths
        if (refusal := why_not_id("session", paths.session)) is not None:
            return self._outcome(paths, status.last, 0, str(refusal))
        sender = await backlog.add_session(paths.session)
        if sender is None:
            return self._outcome(paths, status.last, 0, "it cannot be opened, the log has the reason")
        self.senders.append(sender)
        try:
            await backlog.run(lambda: "")
        finally:
            self.senders.remove(sender)
        return self._outcome(paths, sender.spool.spooled_sequence, sender.spool.acked_sequence, sender.stuck_reason)

    def _outcome(self, paths: SessionPaths, spooled: int, delivered: int, reason: str) -> SessionOutcome:
        if reason:
            self._stuck[paths] = self._clock.monotonic_ms() + STUCK_RETRY_MS
        return SessionOutcome(paths.channel, paths.session, spooled, delivered, reason)

    def _undelivered(self, channel: str) -> list[SessionStatus]:
        """What is not delivered: by its own ack where it is ours, by our ack of it where it is another program's."""
        disk, folder = RealDisk(), self._root / channel
        found = []
        for session in list_sessions(disk, folder):
            status = read_status(disk, SessionPaths(folder, channel, session))
            markers = SessionPaths(self._markers / channel, channel, session)
            acked = read_ack(disk, markers) if status.is_foreign else status.acked
            if status.highest > acked:
                found.append(status)
        return oldest_first(found)
