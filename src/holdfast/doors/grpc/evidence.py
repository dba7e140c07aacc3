"""`holdfast.evidence.v1`: records come in, are stored with their mark and what they ask for, then are acknowledged.

EVD-001: a challenge, the agent's hello, our mark, everything above it. EVD-002: the mark in the state decides, not this
stream: whatever is cut, sent twice or sent on two streams, a record is stored once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import msgspec
import structlog

from holdfast.core import law
from holdfast.core.evidence.marks import RECORDS_BYTES_MAX, TakeEvidence, acked
from holdfast.core.lease.acts import FailLease
from holdfast.core.proof.envelope import Envelope
from holdfast.core.provider.record import provider_id
from holdfast.core.refusal import Refused, Unavailable
from holdfast.doors.completing import completion
from holdfast.doors.grpc.agentdesk import NONCE_BYTES, AgentDesk, first_of, not_registered, requests_of
from holdfast.doors.grpc.handling import Context
from holdfast.doors.grpc.service import Service
from holdfast.doors.records import Examined, From, examine, packed
from holdfast.engine.outcome import Accepted, Outcome
from holdfast.spool.names import why_not_id
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2_grpc

NAME: Final = "holdfast.evidence.v1.EvidenceService"
CREDIT_BYTES: Final = 4 << 20
"""How much may be on its way beyond the mark."""
GROUP_BYTES_MAX: Final = min(1 << 20, RECORDS_BYTES_MAX)
"""What piled up meanwhile is stored together, up to about this much."""
_CLOSING: Final = ("ENG-006", "the node stops", "connect again in a moment")
_log = structlog.get_logger()


class Tally(msgspec.Struct):
    """What has come since the node began."""

    records: int = 0
    duplicates: int = 0
    gaps: int = 0
    poison: int = 0
    unheard: int = 0
    """Records that asked for something and were only stored: badly signed, badly made, or without their bytes."""
    refused: int = 0
    """Records that asked in good order for something that the rules did not allow any more."""


class EvidenceService(evidence_pb2_grpc.EvidenceServiceServicer):
    """One stream is one session of one channel; a channel is a provider's."""

    def __init__(self, at: AgentDesk) -> None:
        self._at, self.tally = at, Tally()

    async def Stream(  # noqa: N802 - the name of the method
        self, _: AsyncIterator[pb.StreamRequest], context: Context
    ) -> Refused | None:
        self._at.check_owner()
        nonce = secrets.token_bytes(NONCE_BYTES)
        await context.write(pb.StreamResponse(challenge=pb.Challenge(nonce=nonce)))
        who = await self._greeted(context, nonce)
        if isinstance(who, Refused):
            return who
        inbox = Inbox()
        reading = asyncio.create_task(inbox.fill(context), name="records of an agent")
        try:
            with self._at.until_closing(inbox.close):
                return await Session(self._at, context, who, self.tally).run(inbox)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _greeted(self, context: Context, nonce: bytes) -> From | Refused:
        """EVD-001: whose channel it is, by a signature over our nonce."""
        request = await first_of(context)
        if request is None or request.WhichOneof("message") != "hello":
            return Refused(
                "EVD-001", "a stream of evidence begins with Hello", "answer the challenge", "InvalidRequest"
            )
        hello = request.hello
        signed = acts.to_sign_hello(nonce, hello.channel_id, hello.session_id)
        if no := await self._at.why_not_signed(hello.public, signed, hello.signature):
            return no
        id_ = provider_id(hello.public)
        if hello.channel_id != id_.hex():
            return Refused("EVD-001", "the channel is another provider's", "a channel is a provider's id", "Forbidden")
        if (bad := why_not_id("session", hello.session_id)) is not None:
            return Refused("EVD-001", bad.says, bad.hint, "InvalidParams")
        if not await self._at.engine.ask(lambda state: id_ in state.providers):
            return not_registered(id_)
        return From(id_, hello.public, hello.channel_id, hello.session_id)


class Inbox:
    """What has come and is not stored yet; who sends more than its credit waits."""

    def __init__(self) -> None:
        self._waiting: deque[pb.Records] = deque()
        self._bytes = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._is_over = False
        self._fault: Refused | Exception | None = None

    async def fill(self, context: Context) -> None:
        """Read on while the last ones are being stored."""
        fault: Refused | Exception | None = None
        try:
            async for request in requests_of(context):
                if request.WhichOneof("message") != "records":
                    fault = Refused("EVD-001", "records were expected", name="InvalidRequest")
                    break
                await self._put(request.records)
        except Exception as raised:
            fault = raised
        self._end(fault)

    async def _put(self, records: pb.Records) -> None:
        while self._bytes > CREDIT_BYTES:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(records)
        self._bytes += size_of(records)
        self._news.set()

    def close(self) -> None:
        """The door closes: what is not being stored yet comes again on the next stream."""
        self._waiting.clear()
        self._end(Unavailable(*_CLOSING))

    def _end(self, fault: Refused | Exception | None) -> None:
        if not self._is_over:
            self._is_over, self._fault = True, fault
            self._news.set()

    async def group(self) -> list[pb.Records] | Refused | None:
        """What has piled up, within bounds; at the end how it ended."""
        while not self._waiting:
            if isinstance(self._fault, Exception):
                raise self._fault
            if self._is_over:
                return self._fault
            self._news.clear()
            await self._news.wait()
        taken = [self._waiting.popleft()]
        total = size_of(taken[0])
        while self._waiting and total + size_of(self._waiting[0]) <= GROUP_BYTES_MAX:
            taken.append(self._waiting.popleft())
            total += size_of(taken[-1])
        self._bytes -= total
        self._room.set()
        return taken


class Session:
    """One session while its stream lasts."""

    def __init__(self, at: AgentDesk, context: Context, who: From, tally: Tally) -> None:
        self._at, self._context, self._who, self._tally = at, context, who, tally
        self._mark = 0

    async def run(self, inbox: Inbox) -> Refused | None:
        await self._look()
        await self._ack()
        while True:
            group = await inbox.group()
            if not isinstance(group, list):
                return group
            no = await self._take(group)
            if no is not None:
                await self._refuse(no)
                return no

    async def _look(self) -> None:
        """The mark, as everybody will find it after a crash."""
        who = self._who
        found = await self._at.engine.ask(lambda state: acked(state, who.channel, who.session))
        self._mark = max(self._mark, found)

    async def _ack(self) -> None:
        await self._context.write(pb.StreamResponse(ack=pb.Ack(acked_sequence=self._mark, credit_bytes=CREDIT_BYTES)))

    async def _refuse(self, no: Refused) -> None:
        told = pb.Refusal(name=no.name, rule=no.rule, says=no.says, hint=no.hint, acked_sequence=self._mark)
        await self._context.write(pb.StreamResponse(refusal=told))

    async def _take(self, group: list[pb.Records]) -> Refused | None:
        """EVD-002: what follows the mark is stored, what is below it is dropped, a gap is refused and nothing moves."""
        lines: list[bytes] = []
        for records in group:
            due = self._mark + len(lines) + 1
            if records.first_sequence > due:
                if no := await self._store(lines):
                    return no
                lines = []
                await self._refuse_gap(records.first_sequence)
                continue
            known = min(due - records.first_sequence, len(records.lines))
            self._tally.duplicates += known
            lines += records.lines[known:]
        if no := await self._store(lines):
            return no
        await self._ack()
        return None

    async def _refuse_gap(self, first: int) -> None:
        self._tally.gaps += 1
        says = f"{self._who.channel}/{self._who.session}: {first} does not follow {self._mark}"
        await self._refuse(Refused("EVD-002", says, "send again from the mark", "EvidenceGap"))

    async def _store(self, lines: list[bytes]) -> Refused | None:
        """The lines that follow the mark; where another stream has stored some of them meanwhile, the rest."""
        while lines:
            first = self._mark + 1
            found = await self._at.in_pool(examine, self._who, self._at.verify, first, lines)
            no = await self._submit(first, lines[: found.count], found) if found.count else None
            if no is None and found.poison is not None and self._mark == first + found.count - 1:
                self._tally.poison += 1
                await self._ack()
                no = found.poison
            if no is not None:
                return no
            lines = lines[self._mark - first + 1 :]
        return None

    async def _submit(self, first: int, lines: list[bytes], found: Examined) -> Refused | None:
        """Records, mark and what they ask for in one batch of the journal, durable when this returns."""
        who, last = self._who, first + len(lines) - 1
        commands = await self._commands(found)
        taking = TakeEvidence(who.provider_id, who.channel, who.session, first, last, packed(lines))
        taken, *outcomes = await self._at.engine.submit_together([taking, *commands])
        if isinstance(taken, Accepted) and not taken.is_repeat:
            self._mark = last
            self._tally.records += len(lines)
            self._count(found, outcomes)
            return None
        before = self._mark
        await self._look()
        return taken if isinstance(taken, Refused) and self._mark == before else None

    async def _commands(self, found: Examined) -> list[law.Command]:
        """What the records ask for. A completion without its bytes is stored as what it is: evidence (RCV-001)."""
        commands: list[law.Command] = []
        for asked in found.asked:
            command = asked if isinstance(asked, FailLease) else await self._completion(asked)
            if isinstance(command, Refused):
                found.unheard.append(str(command))
            else:
                commands.append(command)
        return commands

    async def _completion(self, proof: Envelope) -> law.Command | Refused:
        return await completion(self._at.blobs, self._who.provider_id, proof)

    def _count(self, found: Examined, outcomes: list[Outcome]) -> None:
        """A no to what a record asks for is told nobody but the operator: the record is stored all the same."""
        no = [str(outcome) for outcome in outcomes if isinstance(outcome, Refused)]
        self._tally.unheard += len(found.unheard)
        self._tally.refused += len(no)
        if found.unheard or no:
            _log.info("evidence without effect", channel=self._who.channel, because=[*found.unheard, *no][:8])


def size_of(records: pb.Records) -> int:
    return sum(map(len, records.lines)) + len(records.lines)


def evidence_service(at: AgentDesk) -> Service:
    """Ready to be plugged into the door."""
    return Service(NAME, EvidenceService(at), evidence_pb2_grpc.add_EvidenceServiceServicer_to_server)
