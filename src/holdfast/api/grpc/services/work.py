"""The work stream: a challenge, the agent's answer, every live lease again, then offers one way and acts the other.

All live leases are offered before the first `ActsDone`: a lease that an agent remembers and that is not offered by then
does not belong to it any more.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from itertools import count
from typing import Final

from holdfast.api.grpc.call_wrapping import Context
from holdfast.api.grpc.services.agent_context import AgentContext, refuse_unregistered
from holdfast.api.grpc.services.agent_router import AgentConnection, AgentRouter, StreamEnd, is_after_snapshot
from holdfast.api.grpc.services.streams import NONCE_BYTES, first_request, read_requests
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import LeaseId, ProviderId
from holdfast.core.job.model import Job
from holdfast.core.lease.messages import AckLease, DeclineLease, JobAssigned, LeaseClosed, RenewLease
from holdfast.core.lease.model import Lease
from holdfast.core.proof.messages import ProofAccepted, VoteCast
from holdfast.core.provider.messages import Heartbeat
from holdfast.engine import queries
from holdfast.engine.event_stream import StoredEvent
from holdfast.engine.outcome import Outcome
from holdfast.engine.queries.jobs import GetLiveJob
from holdfast.engine.queries.providers import GetProviderStatus, IsProviderKnown
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

ACTS_MAX: Final = 1_024
"""Acts in one message."""
BODY_BYTES_MAX: Final = 256 << 10
PROOF_INVALID: Final = "PROOF_INVALID"
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


class WorkStreams:
    """All work streams of one server. An agent has one; a new one replaces the old."""

    def __init__(self, agents: AgentContext) -> None:
        self._agents, self.router = agents, AgentRouter(agents.engine)

    async def serve(self, context: Context) -> Refused | None:
        """One stream, from its challenge to its end."""
        self._agents.check_owner()
        nonce = secrets.token_bytes(NONCE_BYTES)
        await context.write(pb.WorkResponse(challenge=pb.Challenge(nonce=nonce)))
        connection = await self._open(context, nonce)
        if isinstance(connection, Refused):
            return connection
        reader = asyncio.create_task(_ActReader(self._agents, connection, nonce).run(context), name="act reader")
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
        signed = signed_messages.to_sign_open(nonce, connection.provider_id)
        if refusal := await self._agents.why_not_signed(connection.public, signed, request.open.signature):
            return refusal
        is_known = await self._agents.engine.query_durable(IsProviderKnown(connection.provider_id))
        return connection if is_known else refuse_unregistered(connection.provider_id)

    async def _send_messages(self, connection: AgentConnection, context: Context) -> Refused | None:
        leases = await self.router.connect(connection)
        await context.write(pb.WorkResponse(welcome=await self._welcome(connection.provider_id)))
        for lease in leases:
            if (offer := await self._repeat_offer(lease)) is not None:
                await context.write(offer)
        while True:
            item = await connection.outbox.get()
            if isinstance(item, StreamEnd):
                return await _end_stream(item, context)
            if isinstance(item, StoredEvent) and not is_after_snapshot(connection, item):
                continue
            message = await self._message(item)
            if message is not None:
                await context.write(message)

    async def _welcome(self, id_: ProviderId) -> pb.Welcome:
        status = await self._agents.engine.query_durable(GetProviderStatus(id_))
        engine = self._agents.engine
        times = {"time_ms": engine.now_ms(), "heartbeat_ms": engine.policy.provider.heartbeat_ms}
        return pb.Welcome(provider_id=id_, status=status, **times)

    async def _message(self, item: StoredEvent | pb.WorkResponse) -> pb.WorkResponse | None:
        if isinstance(item, pb.WorkResponse):
            return item
        match item.event:
            case JobAssigned() as assigned:
                return await self._offer(assigned)
            case ProofAccepted(lease_id=lease_id, reasons=reasons):
                return pb.WorkResponse(verdict=pb.Verdict(lease_id=lease_id, is_accepted=True, reason=reasons))
            case VoteCast(lease_id=lease_id, reasons=reasons):
                return pb.WorkResponse(verdict=pb.Verdict(lease_id=lease_id, is_accepted=True, reason=reasons))
            case LeaseClosed(id=lease_id, reason=reason) if reason == PROOF_INVALID:
                return pb.WorkResponse(verdict=pb.Verdict(lease_id=lease_id, is_accepted=False, reason=reason))
            case LeaseClosed(id=lease_id, reason=reason):
                return pb.WorkResponse(lost=pb.Lost(lease_id=lease_id, reason=reason))
        return None

    # ------------------------------------------------------------------------------------ offers

    async def _offer(self, assigned: JobAssigned) -> pb.WorkResponse | None:
        """The event is durable, and so is its job: an undurable read is enough."""
        job = self._agents.engine.query_undurable(GetLiveJob(assigned.job_id))
        return None if job is None else await self._offer_message(job, assigned.lease_id, assigned)

    async def _repeat_offer(self, lease: Lease) -> pb.WorkResponse | None:
        job = self._agents.engine.query_undurable(GetLiveJob(lease.job_id))
        if job is None:
            return None
        progress = {"is_acked": lease.acked_ms is not None, "is_submitted": lease.submitted is not None}
        return await self._offer_message(job, lease.id, lease, **progress, renewals=lease.renewals)

    async def _offer_message(
        self, job: Job, lease_id: LeaseId, lease: JobAssigned | Lease, **progress: int
    ) -> pb.WorkResponse:
        offer = pb.Offer(
            lease_id=lease_id,
            task_id=job.id,
            kind=job.kind,
            attempt=lease.attempt,
            payload=await queries.spec(self._agents.engine, job),
            t_start_ms=lease.t_start_ms,
            t_deadline_ms=lease.t_deadline_ms,
            renew_by_ms=lease.renew_by_ms,
            ack_by_ms=lease.ack_by_ms,
            time_ms=self._agents.engine.now_ms(),
            proof=job.proof,
            **progress,  # type: ignore[arg-type]
        )
        return pb.WorkResponse(offer=offer)


class _ActReader:
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

    async def _handle_acts(self, request: pb.WorkRequest) -> pb.WorkResponse | Refused:
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
        return pb.WorkResponse(acts_done=pb.ActsDone(count=batch.count, outcomes=map(_outcome, outcomes)))

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


async def _end_stream(end: StreamEnd, context: Context) -> Refused | None:
    if end.is_draining:
        await context.write(pb.WorkResponse(draining=pb.Draining()))
    if isinstance(end.reason, Exception):
        raise end.reason
    return end.reason
