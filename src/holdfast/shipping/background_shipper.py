"""Ships a spool from any process to a node or a v0.1 receiver, in a thread: for standalone users of the spool.

```
spool = Spool.open("classic-1", session, root=root)
with ship(spool, "127.0.0.1:8452", protocol="retrovue") as shipping:
    ticket = spool.emit("SEGMENT_END", {...})       # never blocks
    shipping.wait(ticket.sequence, timeout_s=5)     # optional: until the receiver has it
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
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Final, Self

import structlog

from holdfast.core.base.errors import Refused
from holdfast.ports import Signer
from holdfast.shipping.backlog import Backlog
from holdfast.shipping.backoff import Backoff
from holdfast.shipping.evidence_transport import NodeEvidenceStream, OpenStream
from holdfast.shipping.node_connection import NodeConnection, Tls
from holdfast.shipping.retrovue_transport import RetrovueEvidenceStream
from holdfast.shipping.sender_metrics import SenderMetrics
from holdfast.shipping.session_sender import ACK_STALL_MS, SessionSender
from holdfast.spool import Spool, undelivered_sessions
from holdfast.spool.clock import SystemClock
from holdfast.spool.files.names import SessionPaths

RETRY_BASE_MS: Final = 100
RETRY_CAP_MS: Final = 5_000
_log = structlog.get_logger()


class WireProtocol(StrEnum):
    """Which service the receiver has."""

    HOLDFAST = "holdfast"
    """`holdfast.evidence.v1`: batches under a provider's key; the channel is the provider's id."""
    RETROVUE = "retrovue"
    """`retrovue.evidence.v1`: one record a message; for v0.1 receivers, and nodes that accept such senders."""


class _AsyncSystemClock(SystemClock):
    """The machine's clocks, with a sleep."""

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


class BackgroundShipper:
    """Delivers one channel until it is closed. Close the spool after this."""

    def __init__(
        self,
        spool: Spool,
        connect: Callable[[], NodeConnection],
        make_opener: Callable[[NodeConnection], OpenStream],
        ack_stall_ms: int,
    ) -> None:
        """Created by `ship`."""
        self.metrics = SenderMetrics()
        self._spool, self._connect, self._make_opener, self._ack_stall_ms = spool, connect, make_opener, ack_stall_ms
        self._clock = _AsyncSystemClock()
        self._loop = asyncio.new_event_loop()
        self._live: SessionSender | None = None
        self._stop_requested, self._backlog_done = asyncio.Event(), threading.Event()
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

    def flush(self, timeout_s: float) -> bool:
        """Block until the receiver has all that is spooled now, older sessions included; False after the timeout.

        A stuck session is logged and not waited for; it is retried at the next start.
        """
        until = time.monotonic() + timeout_s
        is_acked = self.wait(self._spool.spooled_sequence, timeout_s)
        return self._backlog_done.wait(max(0.0, until - time.monotonic())) and is_acked

    def close(self, flush_s: float = 0.0) -> bool:
        """Stop, after a flush of up to `flush_s`; whether all of the open session is acked."""
        if flush_s:
            self.flush(flush_s)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop_requested.set)
            self._thread.join()
        return self._spool.acked_sequence >= self._spool.spooled_sequence

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
        open_sender = partial(self._open_sender, self._make_opener(connection))
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

    def _open_sender(self, open_stream: OpenStream, session: str, spool: Spool) -> SessionSender:
        return SessionSender(
            channel=self._spool.paths.channel,
            session=session,
            spool=spool,
            open_stream=open_stream,
            backoff=Backoff(RETRY_BASE_MS, RETRY_CAP_MS, secrets.randbelow),
            metrics=self.metrics,
            ack_stall_ms=self._ack_stall_ms,
        )

    async def _run_backlog(self, backlog: Backlog, live: SessionPaths) -> None:
        try:
            undelivered = await asyncio.to_thread(undelivered_sessions, live.folder.parent, live.channel)
        except OSError as fault:
            _log.error("backlog_not_read", channel=live.channel, reason=str(fault))
            return
        for status in undelivered:
            if status.paths.session != live.session:
                await backlog.add_session(status.paths.session)
        await backlog.run(lambda: live.session)
        self._backlog_done.set()


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
    if protocol not in list(WireProtocol):
        return Refused("EVD-001", f"no protocol {str(protocol)[:40]!r}", " ".join(WireProtocol), "InvalidParams")
    if protocol == WireProtocol.HOLDFAST and signer is None:
        message = "holdfast.evidence.v1 needs a provider's key"
        return Refused("EVD-001", message, "pass `signer`, or protocol='retrovue'", "InvalidParams")
    make_opener = partial(_stream_opener, None if protocol == WireProtocol.RETROVUE else signer)
    return BackgroundShipper(spool, partial(NodeConnection, target, tls), make_opener, ack_stall_ms)


def _stream_opener(signer: Signer | None, connection: NodeConnection) -> OpenStream:
    """Without a signer: the protocol of v0.1."""
    if signer is None:
        return partial(RetrovueEvidenceStream, connection)
    return partial(NodeEvidenceStream, connection, signer)
