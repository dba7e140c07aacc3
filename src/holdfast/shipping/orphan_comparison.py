"""A receiver that is ahead of a v0.1 spool: delivered, if what both have is the same.

A sender of v0.1 sends a record before it is on disk. After a crash the receiver may have records that the spool never
got: its watermark is above our last record, which in a spool of ours would be a protocol error (SP-ACK-001). Here all
our records are sent once more on a stream of their own. The receiver compares them by `event_uuid` (EVD-003); if it
ends that stream without a refusal, it has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from holdfast.shipping.evidence_transport import EvidenceStream, Hello, OpenStream, ReceiverAck
from holdfast.spool import Spool

_log = structlog.get_logger()


class FinishingStream(EvidenceStream, Protocol):
    """A stream whose end the receiver confirms."""

    async def finish(self) -> None:
        """Return when the receiver has handled everything. RefusedByPeer where it refuses."""
        ...


class OrphanStream:
    """A stream of a session that another program began."""

    def __init__(self, open_stream: Callable[[], FinishingStream], spool: Spool) -> None:
        self._open_stream, self._spool = open_stream, spool
        self._stream = open_stream()

    async def handshake(self, hello: Hello) -> ReceiverAck:
        ack = await self._stream.handshake(hello)
        if ack.acked is None or ack.acked <= hello.last_spooled:
            return ack
        await self._compare(hello)
        _log.info("session_delivered_before", session=hello.session, records=hello.last_spooled, receiver=ack.acked)
        return ReceiverAck(hello.last_spooled, ack.credit)

    async def _compare(self, hello: Hello) -> None:
        stream = self._open_stream()
        try:
            await stream.handshake(hello)
            for batch in self._spool.batches(hello.first_available - 1):
                await stream.send(batch.first, batch.lines)
            await stream.finish()
        finally:
            stream.end()

    async def send(self, first: int, lines: list[bytes]) -> None:
        await self._stream.send(first, lines)

    async def receive(self) -> ReceiverAck:
        return await self._stream.receive()

    def end(self) -> None:
        self._stream.end()


def stream_opener(open_stream: Callable[[], FinishingStream], spool: Spool) -> OpenStream:
    """How the streams of this session are opened."""
    return open_stream if spool.is_ours else lambda: OrphanStream(open_stream, spool)
