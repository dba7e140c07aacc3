"""Ships a spool from any process to a node or a v0.1 receiver, in a thread: for standalone users of the spool.

```
spool = Spool.open("classic-1", session, root=root)
with ship(spool, "127.0.0.1:8452", protocol="retrovue") as shipping:
    ticket = spool.emit("SEGMENT_END", {...})       # never blocks
    shipping.wait(ticket.sequence, timeout_s=5)     # optional: until the receiver has it
    delivery = shipping.close(flush_s=10)           # up to which record the receiver has everything
```

It delivers the open session, and beside it the undelivered earlier sessions of the channel, oldest first (EVD-004).
Records that are not acked when the process ends are sent by the next one.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Final, Self

import msgspec
import structlog

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.ports import Signer
from holdfast.shipping.backlog import Backlog
from holdfast.shipping.backoff import Backoff
from holdfast.shipping.evidence_transport import NodeEvidenceStream
from holdfast.shipping.node_connection import NodeConnection, Tls
from holdfast.shipping.orphan_comparison import FinishingStream, stream_opener
from holdfast.shipping.retrovue_transport import RetrovueEvidenceStream
from holdfast.shipping.sender_metrics import SenderMetrics
from holdfast.shipping.session_sender import ACK_STALL_MS, PERMANENT_REFUSALS, SessionSender
from holdfast.spool import Spool, undelivered_sessions
from holdfast.spool.clock import SystemClock
from holdfast.spool.files.atomic_files import as_unavailable
from holdfast.spool.files.names import SessionPaths

RETRY_BASE_MS: Final = 100
RETRY_CAP_MS: Final = 5_000
MakeOpener = Callable[[NodeConnection], Callable[[], FinishingStream]]
_log = structlog.get_logger()


class WireProtocol(StrEnum):
    """Which service the receiver has."""

    HOLDFAST = "holdfast"
    """`holdfast.evidence.v1`: batches under a provider's key; the channel is the provider's id."""
    RETROVUE = "retrovue"
    """`retrovue.evidence.v1`: one record a message; for v0.1 receivers, and nodes that accept such senders."""


class Delivery(msgspec.Struct, frozen=True):
    """What the receiver has, compared with what was emitted. It is true where nothing is left to deliver."""

    emitted: int
    """The last record of the open session that was emitted, spooled or not."""
    delivered: int
    """The last one that the receiver has, with everything before it."""
    undelivered_sessions: tuple[str, ...]
    """Older sessions of the channel that the receiver does not wholly have."""

    def __bool__(self) -> bool:
        return self.delivered >= self.emitted and not self.undelivered_sessions


class AsyncSystemClock(SystemClock):
    """The machine's clocks, with a sleep."""

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


class BackgroundShipper:
    """Delivers one channel until it is closed. Close the spool after this."""

    def __init__(
        self,
        spool: Spool,
        connect: Callable[[], NodeConnection],
        make_opener: MakeOpener,
        ack_stall_ms: int,
    ) -> None:
        """Created by `ship`."""
        self.metrics = SenderMetrics()
        self._spool, self._connect, self._make_opener, self._ack_stall_ms = spool, connect, make_opener, ack_stall_ms
        self._clock = AsyncSystemClock()
        self._loop = asyncio.new_event_loop()
        self._live: SessionSender | None = None
        self._stop_requested, self._backlog_done = asyncio.Event(), threading.Event()
        self._undelivered: dict[str, SessionSender | None] | None = None
        """Older sessions by name, when they were looked for; None: it could not be opened."""
        self._thread = threading.Thread(target=self._run, name="shipping", daemon=True)
        self._thread.start()

    # -------------------------------------------------------------------------------------------- the user's side

    @property
    def stuck_reason(self) -> str:
        """Why the open session cannot be delivered though the receiver answers; empty where it can."""
        return self._live.stuck_reason if self._live is not None else ""

    def wait(self, sequence: int, timeout_s: float | None = None) -> bool:
        """Block until the receiver has this record and its ack is stored; False after the timeout."""
        return self._spool.maintainer.ack_stored.wait(sequence, timeout_s)

    def flush(self, timeout_s: float) -> Delivery:
        """Block until the receiver has all that was emitted by now, older sessions included, or until the timeout.

        A stuck older session is logged and not waited for; it is retried at the next start.
        """
        until, emitted = time.monotonic() + timeout_s, self._spool.emitted_sequence
        with suppress(Unavailable):  # what can never be spooled is never delivered: the answer says so
            self._spool.writer.spooled.wait(emitted, timeout_s)
        self.wait(min(emitted, self._spool.spooled_sequence), max(0.0, until - time.monotonic()))
        self._backlog_done.wait(max(0.0, until - time.monotonic()))
        return self._delivery()

    def close(self, flush_s: float = 0.0) -> Delivery:
        """Stop, after a flush of up to `flush_s`. Returns what is delivered, of all that was emitted.

        Raises Unavailable where the channel's folder cannot be read: then it is not known what is left.
        """
        if flush_s:
            self.flush(flush_s)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop_requested.set)
            self._thread.join()
        return self._delivery()

    def _delivery(self) -> Delivery:
        older = self._undelivered
        if older is None:  # there was no time to look for them, or it failed
            try:
                older = dict.fromkeys(self._older_sessions())
            except OSError as fault:
                raise as_unavailable(fault, "EVD-004") from fault
        left = [name for name, sender in older.items() if sender is None or not sender.is_delivered]
        return Delivery(self._spool.emitted_sequence, self._spool.acked_sequence, tuple(left))

    def _older_sessions(self) -> list[str]:
        """Those of the channel that are not delivered, without the sessions of other programs."""
        live, found = self._spool.paths, list[str]()
        for status in undelivered_sessions(live.folder.parent, live.channel):
            session = status.paths.session
            if status.is_foreign:
                hint = "holdfast spool ship reads it, holdfast spool adopt makes it ours"
                _log.warning("backlog_session_foreign", rule="SP-OWN-001", session=session, hint=hint)
            elif session != live.session:
                found.append(session)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run_senders())

    async def _run_senders(self) -> None:
        connection, paths = self._connect(), self._spool.paths
        open_stream = self._make_opener(connection)
        open_sender = partial(open_session_sender, open_stream, self.metrics, self._ack_stall_ms, paths.channel)
        backlog = Backlog(paths.folder.parent, paths.channel, open_sender, self._clock, None)
        self._live = open_sender(paths.session, self._spool)
        tasks = [
            asyncio.create_task(self._live.run(self._clock), name="live"),
            asyncio.create_task(self._run_backlog(backlog, paths), name="backlog"),
        ]
        await self._stop_requested.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await backlog.close()
        await connection.close()

    async def _run_backlog(self, backlog: Backlog, live: SessionPaths) -> None:
        try:
            older = await asyncio.to_thread(self._older_sessions)
        except OSError as fault:
            _log.error("backlog_not_read", channel=live.channel, reason=str(fault))
            return
        undelivered: dict[str, SessionSender | None] = dict.fromkeys(older)
        self._undelivered = undelivered
        for session in older:
            undelivered[session] = await backlog.add_session(session)
        await backlog.run(lambda: live.session)
        self._backlog_done.set()


def open_session_sender(
    open_stream: Callable[[], FinishingStream],
    metrics: SenderMetrics,
    ack_stall_ms: int,
    channel: str,
    session: str,
    spool: Spool,
    gives_up_on: frozenset[str] = PERMANENT_REFUSALS,
) -> SessionSender:
    """The sender of one session. One that another program began may be delivered already (`orphan_comparison`)."""
    return SessionSender(
        channel=channel,
        session=session,
        spool=spool,
        open_stream=stream_opener(open_stream, spool),
        backoff=Backoff(RETRY_BASE_MS, RETRY_CAP_MS, secrets.randbelow),
        metrics=metrics,
        ack_stall_ms=ack_stall_ms,
        gives_up_on=gives_up_on,
    )


def ship(
    spool: Spool,
    target: str,
    *,
    protocol: WireProtocol | str = WireProtocol.HOLDFAST,
    signer: Signer | None = None,
    tls: Tls | None = None,
    ack_stall_ms: int = ACK_STALL_MS,
) -> BackgroundShipper | Refused:
    """Start to deliver the open session, and the undelivered older sessions of its channel.

    `target` is HOST:PORT. Refused: an unknown protocol, or no signer where the protocol needs one.
    """
    make_opener = transport_opener(protocol, signer)
    if isinstance(make_opener, Refused):
        return make_opener
    return BackgroundShipper(spool, partial(NodeConnection, target, tls), make_opener, ack_stall_ms)


def transport_opener(protocol: WireProtocol | str, signer: Signer | None) -> MakeOpener | Refused:
    """How streams of a protocol are opened on a connection."""
    if protocol not in list(WireProtocol):
        return Refused("EVD-001", f"no protocol {str(protocol)[:40]!r}", " ".join(WireProtocol), "InvalidParams")
    if protocol == WireProtocol.HOLDFAST and signer is None:
        message = "holdfast.evidence.v1 needs a provider's key"
        return Refused("EVD-001", message, "pass `signer`, or protocol='retrovue'", "InvalidParams")
    return partial(_stream_opener, None if protocol == WireProtocol.RETROVUE else signer)


def _stream_opener(signer: Signer | None, connection: NodeConnection) -> Callable[[], FinishingStream]:
    """Without a signer: the protocol of v0.1."""
    if signer is None:
        return partial(RetrovueEvidenceStream, connection)
    return partial(NodeEvidenceStream, connection, signer)
