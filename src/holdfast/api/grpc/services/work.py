"""The work stream: a challenge, the agent's answer, every live lease again, then offers one way and acts the other.

All live leases are offered before the first `ActsDone`: a lease that an agent remembers and that is not offered by then
does not belong to it any more. What has piled up at a wake-up is sent as one message.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from holdfast.api.grpc.call_wrapping import Context
from holdfast.api.grpc.services.act_reader import ActReader
from holdfast.api.grpc.services.agent_context import AgentContext, refuse_unregistered
from holdfast.api.grpc.services.agent_router import AgentConnection, AgentRouter, StreamEnd, is_after_snapshot
from holdfast.api.grpc.services.streams import NONCE_BYTES, first_request
from holdfast.api.grpc.services.work_updates import UpdateBuilder
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import ProviderId
from holdfast.core.provider.model import Provider
from holdfast.engine.loop import Engine
from holdfast.engine.queries.providers import GetProvider, GetProviderStatus
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

INSTANCE_BYTES_MAX: Final = 64


class WorkStreams:
    """All work streams of one server. An agent has one; a new one replaces the old."""

    def __init__(self, agents: AgentContext) -> None:
        self._agents, self.router = agents, AgentRouter(agents.engine)
        self.instances = AgentInstances(agents.engine)

    async def serve(self, context: Context) -> Refused | None:
        """One stream, from its challenge to its end."""
        self._agents.check_owner()
        nonce = secrets.token_bytes(NONCE_BYTES)
        with self._agents.unproven.count(context.peer()):
            await context.write(pb.WorkResponse(challenge=pb.Challenge(nonce=nonce)))
            connection = await self._open(context, nonce)
        if isinstance(connection, Refused):
            return connection
        self._agents.note_proven(context.peer(), connection.provider_id)
        reader = asyncio.create_task(ActReader(self._agents, connection, nonce).run(context), name="act reader")
        try:
            with self._agents.until_closing(lambda: connection.end(StreamEnd(is_draining=True))):
                return await self._send_messages(connection, context)
        finally:
            self.router.disconnect(connection)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _open(self, context: Context, nonce: bytes) -> AgentConnection | Refused:
        """PRV-003: an agent that opens a stream has signed the node's nonce."""
        request = await first_request(context)
        if request is None or request.WhichOneof("message") != "open":
            return Refused("PRV-003", "a work stream begins with Open", "answer the challenge", "InvalidRequest")
        connection = AgentConnection(request.open.public, self._agents.provider_of(request.open.public))
        instance = request.open.instance
        signed = signed_messages.to_sign_open(nonce, connection.provider_id, instance)
        if refusal := await self._agents.why_not_signed(connection.public, signed, request.open.signature):
            return refusal
        provider = await self._agents.engine.query_durable(GetProvider(connection.provider_id))
        if provider is None:
            return refuse_unregistered(connection.provider_id)
        if refusal := self.instances.why_not(provider, instance):
            return refusal
        self.instances.note(provider.id, instance)
        return connection

    async def _send_messages(self, connection: AgentConnection, context: Context) -> Refused | None:
        leases = await self.router.connect(connection)
        await context.write(pb.WorkResponse(welcome=await self._welcome(connection.provider_id)))
        updates = UpdateBuilder(self._agents.engine)
        for lease in leases:
            updates.repeat_offer(lease)
        while True:
            for message in await updates.take():
                await context.write(message)
            for item in await connection.take():
                if isinstance(item, StreamEnd):
                    return await _end_stream(item, updates, context)
                if isinstance(item, pb.ActsDone):
                    updates.add_acts_done(item)
                elif is_after_snapshot(connection, item):
                    updates.add_event(item.event)

    async def _welcome(self, id_: ProviderId) -> pb.Welcome:
        status = await self._agents.engine.query_durable(GetProviderStatus(id_))
        engine = self._agents.engine
        times = {"time_ms": engine.now_ms(), "heartbeat_ms": engine.policy.provider.heartbeat_ms}
        return pb.Welcome(provider_id=id_, status=status, **times)


class AgentInstances:
    """One agent per key: which folder the agents work in that have opened a work stream at this server (RCV-002)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._opened: dict[ProviderId, tuple[bytes, int]] = {}
        """The instance, and when it opened its stream: its first heartbeat follows."""

    def why_not(self, provider: Provider | None, instance: bytes) -> Refused | None:
        """Two agents of one key would sign different outputs for one lease; the first one keeps its place."""
        if len(instance) > INSTANCE_BYTES_MAX:
            return Refused("PRV-003", f"instance: at most {INSTANCE_BYTES_MAX} bytes", name="TooLarge")
        if provider is None or provider.id not in self._opened:
            return None
        known, opened_ms = self._opened[provider.id]
        seen_ms, stale_ms = max(provider.heartbeat_ms, opened_ms), self._engine.policy.provider.heartbeat_stale_ms
        left_ms = seen_ms + stale_ms - self._engine.now_ms()
        if not instance or not known or known == instance or left_ms <= 0:
            return None
        message = "an agent of this key works from another folder"
        return Refused("RCV-002", message, f"run one agent per key, or stop it and wait {left_ms // 1_000 + 1} s")

    def note(self, id_: ProviderId, instance: bytes) -> None:
        """It has opened a work stream."""
        self._opened[id_] = instance, self._engine.now_ms()


async def _end_stream(end: StreamEnd, updates: UpdateBuilder, context: Context) -> Refused | None:
    """What was to be sent before the end is sent before it."""
    for message in await updates.take():
        await context.write(message)
    if end.is_draining:
        await context.write(pb.WorkResponse(draining=pb.Draining()))
    if isinstance(end.reason, Exception):
        raise end.reason
    return end.reason
