"""`holdfast.evidence.v1`: records are received, stored with their watermark and their commands, and acknowledged.

EVD-001: a challenge, the agent's hello, the node's watermark, then all records above it, within a credit.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final

from holdfast.api.evidence.buffer import CREDIT_BYTES, EvidenceBuffer, LineRun, join_consecutive
from holdfast.api.evidence.ingest import EvidenceIngest
from holdfast.api.evidence.metrics import EvidenceMetrics
from holdfast.api.evidence.validation import RecordSender
from holdfast.api.grpc.call_wrapping import Context
from holdfast.api.grpc.service import GrpcService
from holdfast.api.grpc.services.agent_context import AgentContext, refuse_unregistered
from holdfast.api.grpc.services.streams import NONCE_BYTES, fill_in_background, first_request, write_within
from holdfast.core.base.errors import Refused
from holdfast.engine.queries.providers import IsProviderKnown
from holdfast.spool.files.names import why_not_id
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2_grpc

NAME: Final = "holdfast.evidence.v1.EvidenceService"


class EvidenceService(evidence_pb2_grpc.EvidenceServiceServicer):
    """One stream carries one session of one channel; a channel belongs to one provider."""

    def __init__(self, agents: AgentContext, metrics: EvidenceMetrics) -> None:
        self._agents, self.metrics = agents, metrics

    async def Stream(self, _: AsyncIterator[pb.StreamRequest], context: Context) -> Refused | None:  # noqa: N802 - the name of the method
        self.metrics.streams += 1
        refusal = await self._serve(context)
        self.metrics.refused_streams += refusal is not None
        return refusal

    async def _serve(self, context: Context) -> Refused | None:
        self._agents.check_owner()
        nonce = secrets.token_bytes(NONCE_BYTES)
        with self._agents.unproven.count(context.peer()):
            await context.write(pb.StreamResponse(challenge=pb.Challenge(nonce=nonce)))
            handshake = await self._handshake(context, nonce)
        if isinstance(handshake, Refused):
            return handshake
        sender, emitted = handshake
        self._agents.note_proven(context.peer(), sender.provider_id)
        buffer = EvidenceBuffer(records_size, _why_not_records, self.metrics)
        async with fill_in_background(self._agents, context, buffer):
            with self.metrics.track_stream(sender.channel, sender.session) as progress:
                progress.emitted = emitted
                ingest = EvidenceIngest(self._agents, sender, self.metrics, progress)
                return await EvidenceSession(context, ingest).run(buffer, self.metrics)

    async def _handshake(self, context: Context, nonce: bytes) -> tuple[RecordSender, int] | Refused:
        """EVD-001: the sender, who has signed the nonce and owns the channel, and the last sequence it has emitted."""
        request = await first_request(context)
        if request is None or request.WhichOneof("message") != "hello":
            return Refused(
                "EVD-001", "a stream of evidence begins with Hello", "answer the challenge", "InvalidRequest"
            )
        hello = request.hello
        signed = signed_messages.to_sign_hello(nonce, hello.channel_id, hello.session_id)
        if refusal := await self._agents.why_not_signed(hello.public, signed, hello.signature):
            return refusal
        id_ = self._agents.provider_of(hello.public)
        if hello.channel_id != id_.hex():
            return Refused(
                "EVD-001", "the channel belongs to another provider", "the channel is the provider's id", "Forbidden"
            )
        if (invalid := why_not_id("session", hello.session_id)) is not None:
            return Refused("EVD-001", invalid.message, invalid.hint, "InvalidParams")
        if not await self._agents.engine.query_durable(IsProviderKnown(id_)):
            return refuse_unregistered(id_)
        return RecordSender(id_, hello.public, hello.channel_id, hello.session_id), hello.last_sequence_emitted


class EvidenceSession:
    """One session on its stream: stores what is buffered and acknowledges it."""

    def __init__(self, context: Context, ingest: EvidenceIngest) -> None:
        self._context, self._ingest = context, ingest

    async def run(self, buffer: EvidenceBuffer, metrics: EvidenceMetrics) -> Refused | None:
        """Under load the next group is validated while the last one becomes durable."""
        await self._ingest.load_watermark()
        metrics.replays += self._ingest.is_behind
        refusal = await self._ack()
        ahead: list[LineRun] | None = None
        while refusal is None:
            runs = ahead
            if runs is None:
                group = await buffer.next_group()
                if not isinstance(group, list):
                    return group
                runs = _runs_of(group)
            storing = asyncio.ensure_future(self._store(runs))
            try:
                ahead = await self._read_ahead(buffer, storing)
                refusal = await storing or await self._ack()
            finally:
                storing.cancel()
        return refusal

    async def _read_ahead(self, buffer: EvidenceBuffer, storing: asyncio.Future[Any]) -> list[LineRun] | None:
        """The next group, if it is full before this one is stored: a smaller one would grow meanwhile."""
        if not await buffer.wait_full_group(storing):
            return None
        group = await buffer.next_group()
        if not isinstance(group, list):
            return None
        runs = _runs_of(group)
        self._ingest.validate_ahead(*runs[0])
        return runs

    async def _store(self, runs: list[LineRun]) -> Refused | None:
        """Every refusal is sent. After a gap the sender may continue; any other refusal ends the stream."""
        for first, lines in runs:
            refusal = await self._ingest.ingest(first, lines)
            if refusal is not None and (await self._refuse(refusal) or refusal.name != "EvidenceGap"):
                return refusal
        return None

    async def _ack(self) -> Refused | None:
        ack = pb.Ack(acked_sequence=self._ingest.acked, credit_bytes=CREDIT_BYTES)
        return await write_within(self._context, pb.StreamResponse(ack=ack))

    async def _refuse(self, refusal: Refused) -> Refused | None:
        message = pb.Refusal(
            name=refusal.name,
            rule=refusal.rule,
            message=refusal.message,
            hint=refusal.hint,
            acked_sequence=self._ingest.acked,
        )
        return await write_within(self._context, pb.StreamResponse(refusal=message))


def _runs_of(group: list[pb.StreamRequest]) -> list[LineRun]:
    return join_consecutive((request.records.first_sequence, list(request.records.lines)) for request in group)


def _why_not_records(request: pb.StreamRequest) -> Refused | None:
    if request.WhichOneof("message") == "records":
        return None
    return Refused("EVD-001", "records were expected", name="InvalidRequest")


def records_size(request: pb.StreamRequest) -> int:
    lines = request.records.lines
    return sum(map(len, lines)) + len(lines)


def evidence_service(agents: AgentContext, metrics: EvidenceMetrics) -> GrpcService:
    """The service, for `GrpcServer`."""
    servicer = EvidenceService(agents, metrics)
    return GrpcService(NAME, servicer, evidence_pb2_grpc.add_EvidenceServiceServicer_to_server)
