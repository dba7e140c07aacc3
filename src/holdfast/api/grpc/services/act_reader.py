"""The agent's side of the work stream: heartbeats, renewals, declines and ACKs, many under one signature (PRV-003)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

from holdfast.api.grpc.call_wrapping import Context
from holdfast.api.grpc.services.agent_context import AgentContext
from holdfast.api.grpc.services.agent_router import AgentConnection, StreamEnd
from holdfast.api.grpc.services.streams import read_requests
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import LeaseId, ProviderId
from holdfast.core.lease.messages import AckLease, DeclineLease, RenewLease
from holdfast.core.provider.messages import Heartbeat
from holdfast.engine.outcome import Outcome
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

ACTS_MAX: Final = 1_024
"""Acts in one message."""
BODY_BYTES_MAX: Final = 256 << 10
HEARTBEAT: Final = "beat"
HEARTBEATS_MAX: Final = 4
"""Heartbeats in one message."""
_TOO_MANY_HEARTBEATS: Final = Refused(
    "PRV-002", f"more than {HEARTBEATS_MAX} heartbeats at once", "send one", "TooLarge"
)

_COMMANDS: Final[dict[str, Callable[[signed_messages.AgentAct, ProviderId], Command]]] = {
    "ack": lambda act, by: AckLease(LeaseId(act.lease_id), by),
    "renew": lambda act, by: RenewLease(LeaseId(act.lease_id), by, act.renewal),
    "decline": lambda act, by: DeclineLease(LeaseId(act.lease_id), by, act.reason or "DECLINED"),
    HEARTBEAT: lambda act, by: Heartbeat(by, act.slots, act.load, act.versions, act.support),
}


class ActReader:
    """Reads the agent's messages: the acts of one are checked, decided together, and answered when durable."""

    def __init__(self, agents: AgentContext, connection: AgentConnection, nonce: bytes) -> None:
        self._agents, self._connection, self._nonce, self._count = agents, connection, nonce, 0

    async def run(self, context: Context) -> None:
        end = StreamEnd()
        try:
            async for request in read_requests(context):
                response = await self._handle_acts(request)
                if isinstance(response, Refused):
                    end = StreamEnd(response)
                    break
                self._connection.send(response)
        except Exception as fault:
            end = StreamEnd(fault)
        self._connection.end(end)

    async def _handle_acts(self, request: pb.WorkRequest) -> pb.ActsDone | Refused:
        if request.WhichOneof("message") != "acts":
            return Refused("PRV-003", "acts were expected", name="InvalidRequest")
        signed = request.acts
        if len(signed.body) > BODY_BYTES_MAX:
            return Refused("PRV-003", f"a body of {len(signed.body)} bytes", f"at most {BODY_BYTES_MAX}", "TooLarge")
        message = signed_messages.to_sign_acts(signed.body)
        if refusal := await self._agents.why_not_signed(self._connection.public, message, signed.signature):
            return refusal
        batch = signed_messages.read_acts(signed.body)
        if isinstance(batch, Refused):
            return batch
        if refusal := self._why_not_new(batch):
            return refusal
        self._count = batch.count
        await self._agents.rate_limiter.wait_turn(self._connection.provider_id.hex(), len(batch.acts))
        outcomes = await self._decide(batch.acts)
        return pb.ActsDone(count=batch.count, outcomes=map(_outcome, outcomes))

    def _why_not_new(self, batch: signed_messages.ActBatch) -> Refused | None:
        """PRV-003: acts are valid for this stream and once."""
        if batch.nonce != self._nonce:
            return Refused("PRV-003", "acts of another stream", "sign with this stream's nonce", "Unauthorized")
        if batch.count <= self._count:
            message = f"acts {batch.count} after acts {self._count}"
            return Refused("PRV-003", message, "count the messages of a stream", "Unauthorized")
        if len(batch.acts) > ACTS_MAX:
            return Refused("PRV-003", f"{len(batch.acts)} acts at once, at most {ACTS_MAX}", name="TooLarge")
        return None

    async def _decide(self, acts: list[signed_messages.AgentAct]) -> list[Outcome]:
        """All acts in one call of the engine; an invalid act is refused alone.

        Every heartbeat becomes an event, so that their number in a message is bounded.
        """
        heartbeats = count(1)
        read_acts = [
            _TOO_MANY_HEARTBEATS
            if act.act == HEARTBEAT and next(heartbeats) > HEARTBEATS_MAX
            else _command(act, self._connection.provider_id)
            for act in acts
        ]
        commands = [each for each in read_acts if not isinstance(each, Refused)]
        decided = iter(await self._agents.engine.submit_many(commands))
        return [each if isinstance(each, Refused) else next(decided) for each in read_acts]


def _command(act: signed_messages.AgentAct, by: ProviderId) -> Command | Refused:
    make = _COMMANDS.get(act.act)
    if make is None:
        hint = f"use one of {' '.join(_COMMANDS)}"
        return Refused("PRV-003", f"unknown act {act.act[:40]!r}", hint, "InvalidParams")
    if act.act != HEARTBEAT and len(act.lease_id) != 32:
        return Refused("PRV-003", "lease_id: not 32 bytes", name="InvalidParams")
    return make(act, by)


def _outcome(outcome: Outcome) -> pb.ActOutcome:
    if isinstance(outcome, Refused):
        return pb.ActOutcome(name=outcome.name, rule=outcome.rule, message=outcome.message)
    return pb.ActOutcome(is_done=True)
