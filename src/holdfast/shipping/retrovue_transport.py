"""The sender's side of `retrovue.evidence.v1`: one record a message, to a v0.1 receiver or to a node.

SP-ACK-004: a v0.1 receiver answers every hello with 0, which means unknown; any other answer is a watermark.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from holdfast.core.base.errors import Refused
from holdfast.shipping.evidence_transport import Hello, ReceiverAck
from holdfast.shipping.node_connection import (
    NodeConnection,
    ProtocolError,
    RefusedByPeer,
    StreamEnded,
    end_writing,
    read_message,
    write_message,
)
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.retrovue_codec import SCHEMA_VERSION, message_of, raw_message_of

WINDOW_BYTES: Final = 1 << 20
"""A v0.1 receiver gives no credit: this many bytes may be in flight."""
_HELLO: Final = "hello"


class RetrovueEvidenceStream:
    """One session on one stream."""

    def __init__(self, connection: NodeConnection) -> None:
        self._call: Any = connection.open_retrovue_stream()
        self._session_key = ("", "")

    async def handshake(self, hello: Hello) -> ReceiverAck:
        self._session_key = hello.channel, hello.session
        message = pb.Hello(
            first_sequence_available=hello.first_available,
            last_sequence_emitted=hello.last_spooled,
        )
        await write_message(self._call, self._envelope(message))
        ack = await self.receive()
        return ReceiverAck(ack.acked or None, ack.credit)

    def _envelope(self, hello: pb.Hello) -> pb.EvidenceFromAir:
        channel, session = self._session_key
        return pb.EvidenceFromAir(
            schema_version=SCHEMA_VERSION,
            channel_id=channel,
            playout_session_id=session,
            sequence=0,
            event_uuid=_HELLO,
            hello=hello,
        )

    async def send(self, first: int, lines: list[bytes]) -> None:
        for sequence, line in enumerate(lines, first):
            message: pb.EvidenceFromAir | bytes | str | None = message_of(line)
            if isinstance(message, str):  # a record is never skipped silently
                reason = f"record {sequence} cannot be sent as v0.1: {message}"
                if (message := raw_message_of(line)) is None:
                    hint = "send it to a node, by holdfast.evidence.v1"
                    raise RefusedByPeer(Refused("EVD-009", reason, hint, "NotSpoken"))
            await write_message(self._call, message)

    async def receive(self) -> ReceiverAck:
        ack = await read_message(self._call)
        if (ack.channel_id, ack.playout_session_id) != self._session_key:
            raise ProtocolError(f"an ack for {ack.channel_id[:60]!r}, {ack.playout_session_id[:60]!r} on this stream")
        if ack.error:
            name = ack.error.partition(":")[0]  # a Holdfast node begins with the refusal's name
            is_name = name.isalpha() and name.isascii() and name[0].isupper()
            raise RefusedByPeer(
                Refused(
                    "EVD-002",
                    ack.error[:500],
                    "the receiver says it: look at its log",
                    name if is_name else "ReceiverError",
                )
            )
        return ReceiverAck(ack.acked_sequence, WINDOW_BYTES)

    async def finish(self) -> None:
        """End our side and read on until the receiver has ended its own: then it has handled everything."""
        await end_writing(self._call)
        with suppress(StreamEnded):
            while True:
                await self.receive()

    def end(self) -> None:
        self._call.cancel()
