"""`holdfast.evidence.v1`: records come in, are stored with their mark and what they ask for, then are acknowledged.

EVD-001: a challenge, the agent's hello, our mark, everything above it, within a credit.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Final

from holdfast.core.refusal import Refused
from holdfast.doors.grpc.agentdesk import NONCE_BYTES, AgentDesk, first_of, not_registered
from holdfast.doors.grpc.handling import Context
from holdfast.doors.grpc.inbox import CREDIT_BYTES, Inbox, filling, joined, tell
from holdfast.doors.grpc.intake import Intake
from holdfast.doors.grpc.service import Service
from holdfast.doors.records import From
from holdfast.doors.witness import Tally, Witness
from holdfast.spool.names import why_not_id
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2_grpc

NAME: Final = "holdfast.evidence.v1.EvidenceService"


class EvidenceService(evidence_pb2_grpc.EvidenceServiceServicer):
    """One stream is one session of one channel; a channel is a provider's."""

    def __init__(self, at: AgentDesk, witness: Witness) -> None:
        self._at, self._witness = at, witness

    @property
    def tally(self) -> Tally:
        return self._witness.tally

    async def Stream(  # noqa: N802 - the name of the method
        self, _: AsyncIterator[pb.StreamRequest], context: Context
    ) -> Refused | None:
        self.tally.streams += 1
        ended = await self._served(context)
        self.tally.turned_away += isinstance(ended, Refused)
        return ended

    async def _served(self, context: Context) -> Refused | None:
        self._at.check_owner()
        nonce = secrets.token_bytes(NONCE_BYTES)
        await context.write(pb.StreamResponse(challenge=pb.Challenge(nonce=nonce)))
        greeted = await self._greeted(context, nonce)
        if isinstance(greeted, Refused):
            return greeted
        who, emitted = greeted
        inbox = Inbox(size_of, _why_not_records, self.tally)
        async with filling(self._at, context, inbox):
            with self._witness.watching(who.channel, who.session) as seen:
                seen.emitted = emitted
                return await Session(context, Intake(self._at, who, self._witness, seen)).run(inbox, self.tally)

    async def _greeted(self, context: Context, nonce: bytes) -> tuple[From, int] | Refused:
        """EVD-001: whose channel it is, by a signature over our nonce, and how far its sender has come."""
        request = await first_of(context)
        if request is None or request.WhichOneof("message") != "hello":
            return Refused(
                "EVD-001", "a stream of evidence begins with Hello", "answer the challenge", "InvalidRequest"
            )
        hello = request.hello
        signed = acts.to_sign_hello(nonce, hello.channel_id, hello.session_id)
        if no := await self._at.why_not_signed(hello.public, signed, hello.signature):
            return no
        id_ = self._at.holder(hello.public)
        if hello.channel_id != id_.hex():
            return Refused("EVD-001", "the channel is another provider's", "a channel is a provider's id", "Forbidden")
        if (bad := why_not_id("session", hello.session_id)) is not None:
            return Refused("EVD-001", bad.says, bad.hint, "InvalidParams")
        if not await self._at.engine.ask(lambda state: id_ in state.providers):
            return not_registered(id_)
        return From(id_, hello.public, hello.channel_id, hello.session_id), hello.last_sequence_emitted


class Session:
    """One session while its stream lasts."""

    def __init__(self, context: Context, intake: Intake) -> None:
        self._context, self._intake = context, intake

    async def run(self, inbox: Inbox, tally: Tally) -> Refused | None:
        await self._intake.look()
        tally.replays += self._intake.is_behind
        no = await self._ack()
        while no is None:
            group = await inbox.group()
            if not isinstance(group, list):
                return group
            no = await self._taken(group) or await self._ack()
        return no

    async def _taken(self, group: list[pb.StreamRequest]) -> Refused | None:
        """A gap is told and may be mended; any other refusal is told and ends the stream."""
        for first, lines in joined((request.records.first_sequence, list(request.records.lines)) for request in group):
            no = await self._intake.take(first, lines)
            if no is not None and (await self._refuse(no) or no.name != "EvidenceGap"):
                return no
        return None

    async def _ack(self) -> Refused | None:
        ack = pb.Ack(acked_sequence=self._intake.mark, credit_bytes=CREDIT_BYTES)
        return await tell(self._context, pb.StreamResponse(ack=ack))

    async def _refuse(self, no: Refused) -> Refused | None:
        told = pb.Refusal(name=no.name, rule=no.rule, says=no.says, hint=no.hint, acked_sequence=self._intake.mark)
        return await tell(self._context, pb.StreamResponse(refusal=told))


def _why_not_records(request: pb.StreamRequest) -> Refused | None:
    if request.WhichOneof("message") == "records":
        return None
    return Refused("EVD-001", "records were expected", name="InvalidRequest")


def size_of(request: pb.StreamRequest) -> int:
    lines = request.records.lines
    return sum(map(len, lines)) + len(lines)


def evidence_service(at: AgentDesk, witness: Witness | None = None) -> Service:
    """Ready to be plugged into the door."""
    servicer = EvidenceService(at, Witness() if witness is None else witness)
    return Service(NAME, servicer, evidence_pb2_grpc.add_EvidenceServiceServicer_to_server)
