"""The stream of work: a challenge, who it is, every live lease again, then offers one way and acts the other.

What lives is offered before the first `ActsDone`: a lease that an agent remembers and that was not offered until then
is not its own any more.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from itertools import count
from typing import Final

from holdfast.core import law
from holdfast.core.job.record import Job
from holdfast.core.lease.acts import AckLease, DeclineLease, JobAssigned, LeaseClosed, RenewLease
from holdfast.core.lease.record import Lease
from holdfast.core.proof.acts import ProofAccepted
from holdfast.core.proof.votes import VoteCast
from holdfast.core.provider.acts import Beat
from holdfast.core.refusal import Refused
from holdfast.core.values import LeaseId, ProviderId
from holdfast.doors.grpc.agentdesk import NONCE_BYTES, AgentDesk, first_of, not_registered, requests_of
from holdfast.doors.grpc.handling import Context
from holdfast.doors.grpc.switchboard import Over, Seat, Switchboard, is_news
from holdfast.engine import read
from holdfast.engine.outcome import Outcome
from holdfast.engine.tail import Recorded
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

ACTS_MAX: Final = 1_024
"""In one message."""
BODY_BYTES_MAX: Final = 256 << 10
PROOF_INVALID: Final = "PROOF_INVALID"
BEAT: Final = "beat"
BEATS_MAX: Final = 4
"""In one message."""
_BEATS_TOO_MANY: Final = Refused("PRV-002", f"more than {BEATS_MAX} heartbeats at once", "send one", "TooLarge")

_COMMANDS: Final[dict[str, Callable[[acts.Act, ProviderId], law.Command]]] = {
    "ack": lambda act, by: AckLease(LeaseId(act.lease_id), by),
    "renew": lambda act, by: RenewLease(LeaseId(act.lease_id), by, act.renewal),
    "decline": lambda act, by: DeclineLease(LeaseId(act.lease_id), by, act.reason or "DECLINED"),
    BEAT: lambda act, by: Beat(by, act.slots, act.load, act.versions, act.support),
}


class WorkDesk:
    """All work streams of one door; an agent has one, and the newest counts."""

    def __init__(self, at: AgentDesk) -> None:
        self._at, self.board = at, Switchboard(at.engine)

    async def serve(self, context: Context) -> Refused | None:
        """One stream, from its challenge to its end."""
        self._at.check_owner()
        nonce = secrets.token_bytes(NONCE_BYTES)
        await context.write(pb.WorkResponse(challenge=pb.Challenge(nonce=nonce)))
        seat = await self._opened(context, nonce)
        if isinstance(seat, Refused):
            return seat
        hearing = asyncio.create_task(_Hearing(self._at, seat, nonce).run(context), name="acts of an agent")
        try:
            with self._at.until_closing(lambda: seat.end(Over(is_draining=True))):
                return await self._speak(seat, context)
        finally:
            self.board.leave(seat)
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _opened(self, context: Context, nonce: bytes) -> Seat | Refused:
        """PRV-003: who opens a stream has signed the node's nonce."""
        request = await first_of(context)
        if request is None or request.WhichOneof("message") != "open":
            return Refused("PRV-003", "a stream of work begins with Open", "answer the challenge", "InvalidRequest")
        seat = Seat(request.open.public, self._at.holder(request.open.public))
        signed = acts.to_sign_open(nonce, seat.provider_id)
        if no := await self._at.why_not_signed(seat.public, signed, request.open.signature):
            return no
        is_known = await self._at.engine.ask(lambda state: seat.provider_id in state.providers)
        return seat if is_known else not_registered(seat.provider_id)

    async def _speak(self, seat: Seat, context: Context) -> Refused | None:
        leases = await self.board.take_seat(seat)
        await context.write(pb.WorkResponse(welcome=await self._welcome(seat.provider_id)))
        for lease in leases:
            if (offer := await self._offer_again(lease)) is not None:
                await context.write(offer)
        while True:
            told = await seat.waiting.get()
            if isinstance(told, Over):
                return await _ended(told, context)
            message = await self._message(told) if not isinstance(told, Recorded) or is_news(seat, told) else None
            if message is not None:
                await context.write(message)

    async def _welcome(self, id_: ProviderId) -> pb.Welcome:
        status = await self._at.engine.ask(lambda state: str(state.providers[id_].status))
        engine = self._at.engine
        told = {"time_ms": engine.now_ms(), "heartbeat_ms": engine.policy.provider.heartbeat_ms}
        return pb.Welcome(provider_id=id_, status=status, **told)

    async def _message(self, told: Recorded | pb.WorkResponse) -> pb.WorkResponse | None:
        if isinstance(told, pb.WorkResponse):
            return told
        match told.event:
            case JobAssigned() as given:
                return await self._offer(given)
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

    async def _offer(self, given: JobAssigned) -> pb.WorkResponse | None:
        """The event is durable, and so is the job that it speaks of; neither needs to be waited for."""
        marks = (given.t_start_ms, given.t_deadline_ms, given.renew_by_ms, given.ack_by_ms)
        job = self._at.engine.state.queue.jobs.get(given.job_id)
        return None if job is None else await self._offered(job, given.lease_id, given.attempt, marks)

    async def _offer_again(self, lease: Lease) -> pb.WorkResponse | None:
        marks = (lease.t_start_ms, lease.t_deadline_ms, lease.renew_by_ms, lease.ack_by_ms)
        job = self._at.engine.state.queue.jobs.get(lease.job_id)
        if job is None:
            return None
        said = {"is_acked": lease.acked_ms is not None, "is_submitted": lease.submitted is not None}
        return await self._offered(job, lease.id, lease.attempt, marks, **said, renewals=lease.renewals)

    async def _offered(
        self, job: Job, lease_id: LeaseId, attempt: int, marks: tuple[int, int, int, int], **said: int
    ) -> pb.WorkResponse:
        start_ms, deadline_ms, renew_by_ms, ack_by_ms = marks
        offer = pb.Offer(
            lease_id=lease_id,
            task_id=job.id,
            kind=job.kind,
            attempt=attempt,
            payload=await read.spec(self._at.engine, job),
            t_start_ms=start_ms,
            t_deadline_ms=deadline_ms,
            renew_by_ms=renew_by_ms,
            ack_by_ms=ack_by_ms,
            time_ms=self._at.engine.now_ms(),
            proof=job.proof,
            **said,  # type: ignore[arg-type]
        )
        return pb.WorkResponse(offer=offer)


class _Hearing:
    """What comes from the agent, message by message: checked, decided together, answered when durable."""

    def __init__(self, at: AgentDesk, seat: Seat, nonce: bytes) -> None:
        self._at, self._seat, self._nonce, self._count = at, seat, nonce, 0

    async def run(self, context: Context) -> None:
        over = Over()
        try:
            async for request in requests_of(context):
                told = await self._heard(request)
                if isinstance(told, Refused):
                    over = Over(told)
                    break
                self._seat.tell(told)
        except Exception as fault:
            over = Over(fault)
        self._seat.end(over)

    async def _heard(self, request: pb.WorkRequest) -> pb.WorkResponse | Refused:
        if request.WhichOneof("message") != "acts":
            return Refused("PRV-003", "acts were expected", name="InvalidRequest")
        said = request.acts
        if len(said.body) > BODY_BYTES_MAX:
            return Refused("PRV-003", f"a body of {len(said.body)} bytes", f"at most {BODY_BYTES_MAX}", "TooLarge")
        if no := await self._at.why_not_signed(self._seat.public, acts.to_sign_acts(said.body), said.signature):
            return no
        asked = acts.read_acts(said.body)
        if isinstance(asked, Refused):
            return asked
        if no := self._why_not_new(asked):
            return no
        self._count = asked.count
        await self._at.pace.keep(self._seat.provider_id.hex(), len(asked.acts))
        outcomes = await self._decided(asked.acts)
        return pb.WorkResponse(acts_done=pb.ActsDone(count=asked.count, outcomes=map(_outcome, outcomes)))

    def _why_not_new(self, asked: acts.Acts) -> Refused | None:
        """PRV-003: acts are for this stream and for once."""
        if asked.nonce != self._nonce:
            return Refused("PRV-003", "acts of another stream", "sign with this stream's nonce", "Unauthorized")
        if asked.count <= self._count:
            says = f"acts {asked.count} after acts {self._count}"
            return Refused("PRV-003", says, "count the messages of a stream", "Unauthorized")
        if len(asked.acts) > ACTS_MAX:
            return Refused("PRV-003", f"{len(asked.acts)} acts at once, at most {ACTS_MAX}", name="TooLarge")
        return None

    async def _decided(self, asked: list[acts.Act]) -> list[Outcome]:
        """All in one call of the engine; an act that cannot be read is refused alone.

        Every heartbeat is an event, whoever sends it, and nobody has more than a few to say at once.
        """
        beats = count(1)
        read_acts = [
            _BEATS_TOO_MANY if act.act == BEAT and next(beats) > BEATS_MAX else _command(act, self._seat.provider_id)
            for act in asked
        ]
        commands = [each for each in read_acts if not isinstance(each, Refused)]
        decided = iter(await self._at.engine.submit_many(commands))
        return [each if isinstance(each, Refused) else next(decided) for each in read_acts]


def _command(act: acts.Act, by: ProviderId) -> law.Command | Refused:
    make = _COMMANDS.get(act.act)
    if make is None:
        return Refused("PRV-003", f"no act {act.act[:40]!r}", " ".join(_COMMANDS), "InvalidParams")
    if act.act != BEAT and len(act.lease_id) != 32:
        return Refused("PRV-003", "lease_id: 32 bytes", name="InvalidParams")
    return make(act, by)


def _outcome(outcome: Outcome) -> pb.ActOutcome:
    if isinstance(outcome, Refused):
        return pb.ActOutcome(name=outcome.name, rule=outcome.rule, says=outcome.says)
    return pb.ActOutcome(is_done=True)


async def _ended(over: Over, context: Context) -> Refused | None:
    if over.is_draining:
        await context.write(pb.WorkResponse(draining=pb.Draining()))
    if isinstance(over.because, Exception):
        raise over.because
    return over.because
