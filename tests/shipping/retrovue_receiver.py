"""A v0.1 receiver by hand: it answers every hello with 0, repeats acks, and has faults on demand (WIRE §1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from tests.loopback_ports import free_port

from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2_grpc

SessionKey = tuple[str, str]


class RetrovueReceiver(evidence_pb2_grpc.ExecutionEvidenceServiceServicer):
    """What it has outlives its server."""

    def __init__(self) -> None:
        self.port = free_port()
        self.kept: dict[SessionKey, list[pb.EvidenceFromAir]] = {}
        self.hellos: list[pb.EvidenceFromAir] = []
        self.repeated = 0
        """Records that came again."""
        self.cut_after: int | None = None
        """So many messages, then the stream breaks, before the ack of the last."""
        self.is_silent = False
        """Takes records and acks nothing."""
        self.ahead = 0
        """Acks so many more than it has."""
        self.stranger = False
        """Acks a session that is another's."""
        self._server: Any = None

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        evidence_pb2_grpc.add_ExecutionEvidenceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        assert self._server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    def sequences(self, session_key: SessionKey) -> list[int]:
        return [message.sequence for message in self.kept.get(session_key, [])]

    async def EvidenceStream(self, requests: AsyncIterator[pb.EvidenceFromAir], context: Any) -> None:  # noqa: N802 - the name of the method
        async for message in requests:
            if message.WhichOneof("payload") == "hello":
                self.hellos.append(message)
                await self._ack(context, message, 0)
                continue
            error = self._store(message)
            if self.cut_after is not None:
                self.cut_after -= 1
                if self.cut_after <= 0:
                    self.cut_after = None
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            if not self.is_silent:
                mark = len(self.kept[_session_key(message)])
                await self._ack(context, message, mark + self.ahead, error)

    def _store(self, message: pb.EvidenceFromAir) -> str:
        kept = self.kept.setdefault(_session_key(message), [])
        if message.sequence == len(kept) + 1:
            kept.append(message)
        elif message.sequence > len(kept) + 1:
            return f"gap: {message.sequence} after {len(kept)}"
        else:
            self.repeated += 1
        return ""

    async def _ack(self, context: Any, message: pb.EvidenceFromAir, watermark: int, error: str = "") -> None:
        session = "another" if self.stranger else message.playout_session_id
        ack = pb.EvidenceAckFromCore(
            channel_id=message.channel_id, playout_session_id=session, acked_sequence=watermark, error=error
        )
        for _ in range(2):  # it repeats itself
            await context.write(ack)


def _session_key(message: pb.EvidenceFromAir) -> SessionKey:
    return message.channel_id, message.playout_session_id
