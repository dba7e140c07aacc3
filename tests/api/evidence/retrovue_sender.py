"""A v0.1 sender driven step by step, on the stub of the published .proto: as valid or as faulty as a test needs."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.api.grpc.agent_driver import EOF, PATIENCE_S, AgentNode, refusal
from tests.api.grpc.grpc_server import CallFailure, Channel

from holdfast.api.evidence.reader import read_session_lines
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2_grpc

KINDS: dict[str, Any] = {
    "block_start": pb.BlockStart(
        block_id="B1", swap_tick=1, fence_tick=900, actual_start_utc_ms=5, primed_success=True
    ),
    "segment_start": pb.SegmentStart(block_id="B1", event_id="E1", segment_index=0, join_in_progress=False),
    "segment_end": pb.SegmentEnd(block_id="B1", event_id_ref="E1", status="AIRED", computed_duration_frames=30),
    "block_fence": pb.BlockFence(block_id="B1", swap_tick=900, fence_tick=900, total_frames_emitted=2**63),
    "channel_terminated": pb.ChannelTerminated(termination_utc_ms=9, reason="STOPPED", detail="by hand"),
}


class RetrovueSender:
    """One channel and session; a life of the sender draws ids of its own."""

    def __init__(
        self, node: AgentNode, channel: str = "classic-1", session: str = "PS-1", incarnation: str = "a"
    ) -> None:
        self.node, self.channel, self.session, self.incarnation = node, channel, session, incarnation

    def message(self, sequence: int, kind: str = "segment_start", **told: Any) -> pb.EvidenceFromAir:
        fields: dict[str, Any] = {
            "schema_version": 1,
            "channel_id": self.channel,
            "playout_session_id": self.session,
            "sequence": sequence,
            "event_uuid": f"{self.incarnation}-{self.session}-{sequence}",
            "emitted_utc": "2026-02-13T09:00:00.000Z",
            kind: KINDS.get(kind),
        }
        return pb.EvidenceFromAir(**(fields | told))

    def messages(self, first: int, last: int) -> list[pb.EvidenceFromAir]:
        return [self.message(sequence) for sequence in range(first, last + 1)]

    def hello(self, last: int = 0) -> pb.EvidenceFromAir:
        said = pb.Hello(first_sequence_available=1, last_sequence_emitted=last)
        return self.message(0, "hello", event_uuid="hello", emitted_utc="", hello=said)

    def connect(self, channel: Channel = None) -> RetrovueStream:
        stub: Any = evidence_pb2_grpc.ExecutionEvidenceServiceStub(channel or self.node.channel)  # type: ignore[no-untyped-call]
        return RetrovueStream(self, stub.EvidenceStream())

    async def connect_with_hello(self, last: int = 0) -> RetrovueStream:
        """Connected, and its hello answered."""
        stream = self.connect()
        await stream.send(self.hello(last))
        stream.acked_sequence = (await stream.ack()).acked_sequence
        return stream

    async def stored_lines(self) -> list[bytes]:
        return [line async for line in read_session_lines(self.node.engine, self.channel, self.session)]


class RetrovueStream:
    """One stream, message by message."""

    def __init__(self, sender: RetrovueSender, call: Any) -> None:
        self.sender, self.call, self.acked_sequence = sender, call, 0

    async def send(self, *messages: pb.EvidenceFromAir) -> None:
        for message in messages:
            await self.call.write(message)

    async def ack(self) -> pb.EvidenceAckFromCore:
        async with asyncio.timeout(PATIENCE_S):
            ack = await self.call.read()
        assert ack is not EOF, "the stream has ended"
        return ack  # type: ignore[no-any-return]

    async def acks_until(self, acked_sequence: int) -> list[int]:
        """Plain acks until this one; they never go back."""
        marks = [self.acked_sequence]
        while marks[-1] < acked_sequence:
            ack = await self.ack()
            assert ack.error == ""
            marks.append(ack.acked_sequence)
        assert marks == sorted(marks)
        return marks

    async def error(self) -> pb.EvidenceAckFromCore:
        """The ack with the error."""
        while not (ack := await self.ack()).error:
            pass
        return ack

    async def ended(self) -> CallFailure:
        return await refusal(self.call.read())

    async def ended_after_error(self) -> CallFailure:
        await self.error()
        return await self.ended()
