"""How a stream of evidence is spoken, whichever service is at its other end, and `holdfast.evidence.v1` as one of them.

A talk is one stream: greeted once, then records out and marks back. What it says of marks is believed nowhere before
`custody` and the spool have judged it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from holdfast.agent.dial import Broken, Dial, TurnedAway, read_from, write_to
from holdfast.agent.settings import Signer
from holdfast.core.refusal import Refused
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb


class Hello(msgspec.Struct, frozen=True, gc=False):
    """What there is to send (EVD-001)."""

    channel: str
    session: str
    first_available: int
    last_spooled: int


class Mark(msgspec.Struct, frozen=True, gc=False):
    """What the receiver says it has, and how many bytes may be on their way beyond it."""

    acked: int | None
    """None: it cannot tell (SP-ACK-004)."""
    credit: int


class Talk(Protocol):
    """One stream."""

    async def greet(self, hello: Hello) -> Mark:
        """Say hello and hear the answer."""
        ...

    async def say(self, first: int, lines: list[bytes]) -> None: ...
    async def hear(self) -> Mark:
        """The next mark. TurnedAway where the receiver says no."""
        ...

    def end(self) -> None: ...


Tongue = Callable[[], Talk]
"""Opens a stream."""


class NodeTalk:
    """`holdfast.evidence.v1`: many records a message, under the provider's key."""

    def __init__(self, dial: Dial, signer: Signer) -> None:
        self._signer = signer
        self._call: Any = dial.evidence.Stream()

    async def greet(self, hello: Hello) -> Mark:
        first = await read_from(self._call)
        if first.WhichOneof("message") != "challenge":
            raise Broken("the node did not begin with a challenge")
        signed = acts.to_sign_hello(first.challenge.nonce, hello.channel, hello.session)
        said = pb.Hello(
            channel_id=hello.channel,
            session_id=hello.session,
            first_sequence_available=hello.first_available,
            last_sequence_emitted=hello.last_spooled,
            public=self._signer.public,
            signature=self._signer.sign(signed),
        )
        await write_to(self._call, pb.StreamRequest(hello=said))
        return await self.hear()

    async def say(self, first: int, lines: list[bytes]) -> None:
        await write_to(self._call, pb.StreamRequest(records=pb.Records(first_sequence=first, lines=lines)))

    async def hear(self) -> Mark:
        message = await read_from(self._call)
        kind = message.WhichOneof("message")
        if kind == "refusal":
            no = message.refusal
            raise TurnedAway(Refused(no.rule, no.says, no.hint, no.name))
        if kind != "ack":
            raise Broken(f"the node said {kind} where an ack was due")
        return Mark(message.ack.acked_sequence, message.ack.credit_bytes)

    def end(self) -> None:
        self._call.cancel()
