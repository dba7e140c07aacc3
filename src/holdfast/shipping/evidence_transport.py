"""The interface of an evidence stream, for every protocol, and its implementation for `holdfast.evidence.v1`.

A stream begins with a handshake; then records are sent and acks received. Acks are not trusted before `flow_control`
and the spool have checked them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.ports import Signer
from holdfast.shipping.node_connection import (
    NodeConnection,
    ProtocolError,
    RefusedByPeer,
    StreamEnded,
    end_writing,
    read_message,
    write_message,
)
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb


class Hello(msgspec.Struct, frozen=True, gc=False):
    """The records that the sender has (EVD-001)."""

    channel: str
    session: str
    first_available: int
    last_spooled: int


class ReceiverAck(msgspec.Struct, frozen=True, gc=False):
    """The receiver's watermark, and how many bytes may be in flight above it."""

    acked: int | None
    """None: the receiver does not know (SP-ACK-004)."""
    credit: int


class EvidenceStream(Protocol):
    """One stream."""

    async def handshake(self, hello: Hello) -> ReceiverAck:
        """Send the hello and receive the watermark."""
        ...

    async def send(self, first: int, lines: list[bytes]) -> None: ...
    async def receive(self) -> ReceiverAck:
        """The next ack. RefusedByPeer where the receiver refuses."""
        ...

    def end(self) -> None: ...


OpenStream = Callable[[], EvidenceStream]
"""Opens a stream."""


class NodeEvidenceStream:
    """`holdfast.evidence.v1`: many records a message, authenticated by the provider's key."""

    def __init__(self, connection: NodeConnection, signer: Signer) -> None:
        self._signer = signer
        self._call: Any = connection.evidence.Stream()

    async def handshake(self, hello: Hello) -> ReceiverAck:
        first = await read_message(self._call)
        if first.WhichOneof("message") != "challenge":
            raise ProtocolError("the node did not begin with a challenge")
        signed = signed_messages.to_sign_hello(first.challenge.nonce, hello.channel, hello.session)
        message = pb.Hello(
            channel_id=hello.channel,
            session_id=hello.session,
            first_sequence_available=hello.first_available,
            last_sequence_emitted=hello.last_spooled,
            public=self._signer.public,
            signature=self._signer.sign(signed),
        )
        await write_message(self._call, pb.StreamRequest(hello=message))
        return await self.receive()

    async def send(self, first: int, lines: list[bytes]) -> None:
        await write_message(self._call, pb.StreamRequest(records=pb.Records(first_sequence=first, lines=lines)))

    async def receive(self) -> ReceiverAck:
        message = await read_message(self._call)
        kind = message.WhichOneof("message")
        if kind == "refusal":
            refusal = message.refusal
            raise RefusedByPeer(Refused(refusal.rule, refusal.message, refusal.hint, refusal.name))
        if kind != "ack":
            raise ProtocolError(f"the node sent {kind} instead of an ack")
        return ReceiverAck(message.ack.acked_sequence, message.ack.credit_bytes)

    async def finish(self) -> None:
        """End our side and read on until the receiver has ended its own: then it has handled everything."""
        await end_writing(self._call)
        with suppress(StreamEnded):
            while True:
                await self.receive()

    def end(self) -> None:
        self._call.cancel()
