"""`retrovue.evidence.v1`: evidence as v0.1 sends it, one record a message, stored by the same rules.

EVD-009: a v0.1 sender has no key. It is accepted only where the operator allows it, and its records cause no commands.
Its faults are known: it sends records before it has spooled them, repeats records, replays from 1, ignores errors, and
closes a gap only on a new connection. So every refusal ends the stream, after an ack that carries the error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any, Final

import grpc

from holdfast.api.evidence.buffer import EvidenceBuffer, LineRun, join_consecutive
from holdfast.api.evidence.ingest import EvidenceIngest
from holdfast.api.evidence.metrics import EvidenceMetrics, StreamProgress
from holdfast.api.evidence.validation import RecordSender
from holdfast.api.grpc.auth_interceptor import certificate_of
from holdfast.api.grpc.call_wrapping import Context
from holdfast.api.grpc.service import GrpcService
from holdfast.api.grpc.services.agent_context import AgentContext
from holdfast.api.grpc.services.streams import fill_in_background, write_within
from holdfast.api.grpc.settings import LegacyEvidence
from holdfast.core.base.errors import Refused
from holdfast.core.evidence.model import NO_PROVIDER, is_provider_channel
from holdfast.engine.queries.evidence import GetChannelOwner
from holdfast.spool.files.names import why_not_id
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2_grpc
from holdfast.wire.retrovue_codec import HELLO, UnreadableMessage, line_of, read_message

NAME: Final = "retrovue.evidence.v1.ExecutionEvidenceService"
METHOD: Final = "EvidenceStream"
SESSIONS_MAX: Final = 16
"""Sessions that one stream may carry: a sender may begin a new session without a new connection."""
_DISABLED: Final = Refused(
    "EVD-009", "evidence of v0.1 senders is not accepted", "the operator sets grpc.legacy_evidence", "Forbidden"
)
SessionKey = tuple[str, str]
"""Channel and session."""
Message = pb.EvidenceFromAir | UnreadableMessage


class RetrovueService(evidence_pb2_grpc.ExecutionEvidenceServiceServicer):
    """Every message names its session; a stream carries one session, or a few after each other."""

    def __init__(self, agents: AgentContext, metrics: EvidenceMetrics, mode: LegacyEvidence) -> None:
        self._agents, self._metrics, self._mode = agents, metrics, mode

    async def EvidenceStream(self, _: AsyncIterator[pb.EvidenceFromAir], context: Context) -> Refused | None:  # noqa: N802 - the name of the method
        self._metrics.streams += 1
        refusal = _DISABLED if self._mode is LegacyEvidence.OFF else await self._serve(context)
        self._metrics.refused_streams += refusal is not None
        return refusal

    async def _serve(self, context: Context) -> Refused | None:
        self._agents.check_owner()
        buffer = EvidenceBuffer(lambda message: message.ByteSize(), lambda _: None, self._metrics)
        with ExitStack() as tracked:
            async with fill_in_background(self._agents, context, buffer):
                stream = _RetrovueStream(self._agents, context, self._metrics, self._mode, tracked)
                return await stream.run(buffer)


class _StreamSession:
    """One session on this stream."""

    def __init__(self, ingest: EvidenceIngest, progress: StreamProgress) -> None:
        self.ingest, self.progress = ingest, progress


class _RetrovueStream:
    """Stores the buffered messages in order and acknowledges what is durable."""

    def __init__(
        self, agents: AgentContext, context: Context, metrics: EvidenceMetrics, mode: LegacyEvidence, tracked: ExitStack
    ) -> None:
        self._agents, self._context, self._metrics = agents, context, metrics
        self._mode, self._tracked = mode, tracked
        self._sessions: dict[SessionKey, _StreamSession] = {}

    async def run(self, buffer: EvidenceBuffer) -> Refused | None:
        refusal: Refused | None = None
        while refusal is None:
            group = await buffer.next_group()
            if not isinstance(group, list):
                return group
            refusal = await self._handle_group(group)
        return refusal

    async def _handle_group(self, group: list[Message]) -> Refused | None:
        """Consecutive records of one session are stored together; a hello is answered in its turn."""
        position = 0
        while position < len(group):
            key, begin = _session_of(group[position]), position
            hello = _hello_of(group[position])
            position += 1
            while hello is None and position < len(group) and _is_record_of(key, group[position]):
                position += 1
            session = await self._session(key)
            if isinstance(session, Refused):
                return await self._refuse(key, 0, session)
            if hello is not None:
                self._on_hello(session, hello)
            elif (refusal := await self._store(session, group[begin:position])) is not None:
                return await self._refuse(key, session.ingest.acked, refusal)
            if (too_slow := await self._ack(key, session)) is not None:
                return too_slow
        return None

    def _on_hello(self, session: _StreamSession, hello: pb.Hello) -> None:
        """EVD-001: the answer is the node's watermark, whatever the sender believes."""
        session.progress.emitted = max(session.progress.emitted, hello.last_sequence_emitted)
        self._metrics.replays += session.ingest.is_behind

    async def _store(self, session: _StreamSession, messages: list[Message]) -> Refused | None:
        for first, lines in join_consecutive(map(_line_run, messages)):
            if (refusal := await session.ingest.ingest(first, lines)) is not None:
                return refusal
        return None

    async def _session(self, key: SessionKey) -> _StreamSession | Refused:
        session = self._sessions.get(key)
        if session is not None:
            return session
        if (refusal := await self._why_not_session(key)) is not None:
            return refusal
        progress = self._tracked.enter_context(self._metrics.track_stream(*key))
        ingest = EvidenceIngest(self._agents, RecordSender(NO_PROVIDER, b"", *key), self._metrics, progress)
        session = self._sessions[key] = _StreamSession(ingest, progress)
        await ingest.load_watermark()
        return session

    async def _why_not_session(self, key: SessionKey) -> Refused | None:
        channel, session = key
        if invalid := why_not_id("channel", channel) or why_not_id("session", session):
            return Refused("EVD-009", invalid.message, invalid.hint, "InvalidParams")
        if is_provider_channel(channel):
            return Refused("EVD-009", "the channel is a provider's", "only that provider may send for it", "Forbidden")
        if len(self._sessions) >= SESSIONS_MAX:
            return Refused("EVD-009", f"more than {SESSIONS_MAX} sessions on a stream", "connect again", "TooLarge")
        if self._mode is LegacyEvidence.OPEN:
            return None
        certificate = certificate_of(self._context)
        owner = await self._agents.engine.query_durable(GetChannelOwner(channel))
        if certificate is None or certificate.name != owner:
            name = "none" if certificate is None else repr(certificate.name[:60])
            message = f"the channel needs the certificate {owner[:60]!r}, not {name}"
            return Refused("EVD-009", message, "an operator may run holdfast evidence set-owner", "Forbidden")
        return None

    async def _ack(self, key: SessionKey, session: _StreamSession) -> Refused | None:
        return await write_within(self._context, _ack_of(key, session.ingest.acked))

    async def _refuse(self, key: SessionKey, acked: int, refusal: Refused) -> Refused:
        """EVD-002: an error with an unchanged ack; then the stream ends, and the sender starts from the watermark."""
        await write_within(self._context, _ack_of(key, acked, f"{refusal.name}: {refusal}"))
        return refusal


def _ack_of(key: SessionKey, acked: int, error: str = "") -> pb.EvidenceAckFromCore:
    return pb.EvidenceAckFromCore(channel_id=key[0], playout_session_id=key[1], acked_sequence=acked, error=error)


def _session_of(message: Message) -> SessionKey:
    return message.channel_id, message.playout_session_id


def _hello_of(message: Message) -> pb.Hello | None:
    if isinstance(message, UnreadableMessage) or message.WhichOneof("payload") != HELLO:
        return None
    return message.hello


def _is_record_of(key: SessionKey, message: Message) -> bool:
    return _session_of(message) == key and _hello_of(message) is None


def _line_run(message: Message) -> LineRun:
    """A message that is not a record is kept as received: a dead letter (EVD-007)."""
    if isinstance(message, UnreadableMessage):
        return message.sequence, [message.raw]
    line = line_of(message)
    return message.sequence, [line if isinstance(line, bytes) else message.SerializeToString()]


def retrovue_service(agents: AgentContext, metrics: EvidenceMetrics, mode: LegacyEvidence) -> GrpcService:
    """The service, for `GrpcServer`."""
    return GrpcService(NAME, RetrovueService(agents, metrics, mode), _register)


def _register(servicer: Any, server: Any) -> None:
    """As the generated code does it, but for how a message is decoded: one bad text must not end the stream."""
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.EvidenceStream, read_message, pb.EvidenceAckFromCore.SerializeToString
    )
    handlers = {METHOD: handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
    server.add_registered_method_handlers(NAME, handlers)
