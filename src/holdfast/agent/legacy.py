"""`retrovue.evidence.v1` as a sender speaks it: one record a message, to a v0.1 receiver or to a node of ours.

SP-ACK-004: a v0.1 receiver answers every hello with 0, which means that it cannot tell; any other answer is a mark.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.agent.dial import Broken, Dial, TurnedAway, read_from, write_to
from holdfast.agent.tongue import Hello, Mark
from holdfast.core.refusal import Refused
from holdfast.wire.airline import SCHEMA_VERSION, message_of
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb

WINDOW_BYTES: Final = 1 << 20
"""A v0.1 receiver gives no credit: so much may be on its way."""
_HELLO: Final = "hello"


class LegacyTalk:
    """One session on one stream."""

    def __init__(self, dial: Dial) -> None:
        self._call: Any = dial.legacy.EvidenceStream()
        self._whose = ("", "")

    async def greet(self, hello: Hello) -> Mark:
        self._whose = hello.channel, hello.session
        said = pb.Hello(
            first_sequence_available=hello.first_available,
            last_sequence_emitted=hello.last_spooled,
        )
        await write_to(self._call, self._envelope(said))
        told = await self.hear()
        return Mark(told.acked or None, told.credit)

    def _envelope(self, hello: pb.Hello) -> pb.EvidenceFromAir:
        channel, session = self._whose
        return pb.EvidenceFromAir(
            schema_version=SCHEMA_VERSION,
            channel_id=channel,
            playout_session_id=session,
            sequence=0,
            event_uuid=_HELLO,
            hello=hello,
        )

    async def say(self, first: int, lines: list[bytes]) -> None:
        for sequence, line in enumerate(lines, first):
            message = message_of(line)
            if isinstance(message, str):  # it is never passed over in silence
                says = f"record {sequence} cannot be sent as v0.1: {message}"
                raise TurnedAway(Refused("EVD-009", says, "send it to a node, by holdfast.evidence.v1", "NotSpoken"))
            await write_to(self._call, message)

    async def hear(self) -> Mark:
        ack = await read_from(self._call)
        if (ack.channel_id, ack.playout_session_id) != self._whose:
            raise Broken(f"an ack for {ack.channel_id[:60]!r}, {ack.playout_session_id[:60]!r} on this stream")
        if ack.error:
            name = ack.error.partition(":")[0]  # a node of ours says its refusal's name first
            is_name = name.isalpha() and name.isascii() and name[0].isupper()
            raise TurnedAway(Refused("EVD-002", ack.error[:500], "", name if is_name else "ReceiverError"))
        return Mark(ack.acked_sequence, WINDOW_BYTES)

    def end(self) -> None:
        self._call.cancel()
