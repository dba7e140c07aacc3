"""`retrovue.evidence.v1`: evidence as v0.1 sends it, one record a message, into the same store by the same rules.

EVD-009: a v0.1 sender has no key. It is let in only where the operator says so, and its records ask for nothing. What
it gets wrong is known: it sends before it has spooled, repeats itself, plays back from 1, does not look at errors and
mends a gap only when it connects anew. So every refusal ends the stream after the ack that tells of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Final

from holdfast.core.evidence.marks import NOBODY, is_providers
from holdfast.core.evidence.sessions import owner_of
from holdfast.core.refusal import Refused
from holdfast.doors.grpc.agentdesk import AgentDesk
from holdfast.doors.grpc.handling import Context
from holdfast.doors.grpc.identifying import certificate_of
from holdfast.doors.grpc.inbox import Inbox, Piece, filling, joined, tell
from holdfast.doors.grpc.intake import Intake
from holdfast.doors.grpc.service import Service
from holdfast.doors.grpc.settings import LegacyEvidence
from holdfast.doors.records import From
from holdfast.doors.witness import Open, Witness
from holdfast.spool.names import why_not_id
from holdfast.wire.airline import HELLO, line_of
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2_grpc

NAME: Final = "retrovue.evidence.v1.ExecutionEvidenceService"
SESSIONS_MAX: Final = 16
"""That one stream may carry: a sender that begins a new one need not connect anew."""
_OFF: Final = Refused(
    "EVD-009", "evidence of v0.1 senders is not taken here", "the operator sets grpc.legacy_evidence", "Forbidden"
)
Whose = tuple[str, str]
"""Channel and session."""


class LegacyService(evidence_pb2_grpc.ExecutionEvidenceServiceServicer):
    """Every message says whose it is; a stream carries one session, or a few after each other."""

    def __init__(self, at: AgentDesk, witness: Witness, mode: LegacyEvidence) -> None:
        self._at, self._witness, self._mode = at, witness, mode

    async def EvidenceStream(  # noqa: N802 - the name of the method
        self, _: AsyncIterator[pb.EvidenceFromAir], context: Context
    ) -> Refused | None:
        tally = self._witness.tally
        tally.streams += 1
        ended = _OFF if self._mode is LegacyEvidence.OFF else await self._served(context)
        tally.turned_away += isinstance(ended, Refused)
        return ended

    async def _served(self, context: Context) -> Refused | None:
        self._at.check_owner()
        inbox = Inbox(lambda message: message.ByteSize(), lambda _: None, self._witness.tally)
        with ExitStack() as watched:
            async with filling(self._at, context, inbox):
                return await _Stream(self._at, context, self._witness, self._mode, watched).run(inbox)


class _Known:
    """One session on this stream."""

    def __init__(self, intake: Intake, seen: Open) -> None:
        self.intake, self.seen = intake, seen


class _Stream:
    """Takes what came, message by message, and acks what is durable."""

    def __init__(
        self, at: AgentDesk, context: Context, witness: Witness, mode: LegacyEvidence, watched: ExitStack
    ) -> None:
        self._at, self._context, self._witness = at, context, witness
        self._mode, self._watched = mode, watched
        self._known: dict[Whose, _Known] = {}

    async def run(self, inbox: Inbox) -> Refused | None:
        no: Refused | None = None
        while no is None:
            group = await inbox.group()
            if not isinstance(group, list):
                return group
            no = await self._heard(group)
        return no

    async def _heard(self, group: list[pb.EvidenceFromAir]) -> Refused | None:
        """Stretches of records of one session are stored together; a hello is answered when its turn comes."""
        at = 0
        while at < len(group):
            whose, begin = _whose(group[at]), at
            is_hello = _is_hello(group[at])
            at += 1
            while not is_hello and at < len(group) and _whose(group[at]) == whose and not _is_hello(group[at]):
                at += 1
            known = await self._known_as(whose)
            if isinstance(known, Refused):
                return await self._told(whose, 0, known)
            if is_hello:
                self._greeted(known, group[begin])
            elif (no := await self._taken(known, group[begin:at])) is not None:
                return await self._told(whose, known.intake.mark, no)
            if (slow := await self._ack(whose, known)) is not None:
                return slow
        return None

    def _greeted(self, known: _Known, message: pb.EvidenceFromAir) -> None:
        """EVD-001: the answer is the true mark, whatever the sender believes."""
        known.seen.emitted = max(known.seen.emitted, message.hello.last_sequence_emitted)
        self._witness.tally.replays += known.intake.is_behind

    async def _taken(self, known: _Known, messages: list[pb.EvidenceFromAir]) -> Refused | None:
        for first, lines in joined(map(_piece, messages)):
            if (no := await known.intake.take(first, lines)) is not None:
                return no
        return None

    async def _known_as(self, whose: Whose) -> _Known | Refused:
        known = self._known.get(whose)
        if known is not None:
            return known
        if (no := await self._why_not_welcome(whose)) is not None:
            return no
        seen = self._watched.enter_context(self._witness.watching(*whose))
        known = self._known[whose] = _Known(Intake(self._at, From(NOBODY, b"", *whose), self._witness, seen), seen)
        await known.intake.look()
        return known

    async def _why_not_welcome(self, whose: Whose) -> Refused | None:
        channel, session = whose
        if bad := why_not_id("channel", channel) or why_not_id("session", session):
            return Refused("EVD-009", bad.says, bad.hint, "InvalidParams")
        if is_providers(channel):
            return Refused("EVD-009", "the channel is a provider's", "its provider sends for it, signed", "Forbidden")
        if len(self._known) >= SESSIONS_MAX:
            return Refused("EVD-009", f"more than {SESSIONS_MAX} sessions on a stream", "connect anew", "TooLarge")
        if self._mode is LegacyEvidence.OPEN:
            return None
        shown = certificate_of(self._context)
        owner = await self._at.engine.ask(lambda state: owner_of(state, channel))
        if shown is None or shown.name != owner:
            name = "nobody" if shown is None else f"{shown.name[:60]!r}"
            says = f"the channel is {owner[:60]!r}'s, the certificate {name}'s"
            return Refused("EVD-009", says, "an operator may assign it: holdfast evidence assign", "Forbidden")
        return None

    async def _ack(self, whose: Whose, known: _Known) -> Refused | None:
        return await tell(self._context, _ack_of(whose, known.intake.mark))

    async def _told(self, whose: Whose, mark: int, no: Refused) -> Refused:
        """EVD-002: an error with an unchanged ack; then the stream ends, and its sender begins from the mark."""
        await tell(self._context, _ack_of(whose, mark, f"{no.name}: {no}"))
        return no


def _ack_of(whose: Whose, mark: int, error: str = "") -> pb.EvidenceAckFromCore:
    return pb.EvidenceAckFromCore(channel_id=whose[0], playout_session_id=whose[1], acked_sequence=mark, error=error)


def _whose(message: pb.EvidenceFromAir) -> Whose:
    return message.channel_id, message.playout_session_id


def _is_hello(message: pb.EvidenceFromAir) -> bool:
    return bool(message.WhichOneof("payload") == HELLO)


def _piece(message: pb.EvidenceFromAir) -> Piece:
    """A message that is no record is kept as it came: a dead letter (EVD-007)."""
    line = line_of(message)
    return message.sequence, [line if isinstance(line, bytes) else message.SerializeToString()]


def legacy_service(at: AgentDesk, witness: Witness, mode: LegacyEvidence) -> Service:
    """Ready to be plugged into the door."""
    add = evidence_pb2_grpc.add_ExecutionEvidenceServiceServicer_to_server
    return Service(NAME, LegacyService(at, witness, mode), add)
