"""How far each session's evidence has come: the highest contiguous sequence that is durable."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.core.event import Decided, Event, Payload, enclose
from holdfast.core.provider.record import Registry
from holdfast.core.refusal import Refused
from holdfast.core.values import Digest, EventNo, ProviderId

SESSION_MAX = 128
RECORDS_BYTES_MAX = 4 << 20


class TakeEvidence(msgspec.Struct, frozen=True, gc=False):
    """Records of a session, in order and without gaps: lines as they were spooled, checked before they came here."""

    provider_id: ProviderId
    channel: str
    session: str
    first: int
    last: int
    lines: bytes


class EvidenceTaken(Event, frozen=True, tag=92):
    """The node holds these records."""

    provider_id: ProviderId
    channel: str
    session: str
    first: int
    last: int
    payload: Payload


class Mark(msgspec.Struct, array_like=True, gc=False):
    """How far one session has come; a row of the table `mark`."""

    id: str
    provider_id: ProviderId
    channel: str
    session: str
    acked: int


class Evidence(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records as they came; a row of the table `evidence`, large ones beside their batch (ENG-007)."""

    event: EventNo
    provider_id: ProviderId
    channel: str
    session: str
    first_sequence: int
    last_sequence: int
    size: int
    digest: Digest
    lines: bytes | None


class Witnessing(Registry, Protocol):
    """What this station needs of the state."""

    marks: dict[str, Mark]


def mark_id(channel: str, session: str) -> str:
    return f"{channel}/{session}"


def acked(state: Witnessing, channel: str, session: str) -> int:
    """EVD-002: the highest contiguous sequence that the node holds, 0 where it holds nothing."""
    mark = state.marks.get(mark_id(channel, session))
    return mark.acked if mark is not None else 0


def take(state: Witnessing, command: TakeEvidence, _now_ms: int) -> Decided | Refused:
    """EVD-002: what follows the mark is taken, what is at or below it was taken before, a gap is refused."""
    if no := _why_not_channel(state, command):
        return no
    mark = acked(state, command.channel, command.session)
    if command.last <= mark:
        return Decided((), since=state.last_event)
    if command.first != mark + 1:
        says = f"{command.channel}/{command.session}: {command.first} does not follow {mark}"
        return Refused("EVD-002", says, "send again from the mark", "EvidenceGap")
    payload, attachments = enclose(command.lines, state.policy.engine.inline_payload_bytes_max)
    where = (command.provider_id, command.channel, command.session)
    return Decided((EvidenceTaken(*where, command.first, command.last, payload),), attachments)


def _why_not_channel(state: Witnessing, command: TakeEvidence) -> Refused | None:
    if command.provider_id not in state.providers:
        return Refused("EVD-001", f"no provider {command.provider_id.hex()}", "register first", "NotFound")
    if command.channel != command.provider_id.hex():
        return Refused("EVD-001", "the channel is another provider's", name="Forbidden")
    if not 1 <= len(command.session) <= SESSION_MAX or not 1 <= command.first <= command.last < 2**63:
        return Refused("EVD-001", "session or sequence out of range", name="InvalidParams")
    if not 0 < len(command.lines) <= RECORDS_BYTES_MAX:
        return Refused("EVD-001", f"records: {len(command.lines)} bytes", "send fewer at a time", "TooLarge")
    return None


def apply_taken(state: Witnessing, event: EvidenceTaken) -> None:
    id_ = mark_id(event.channel, event.session)
    mark = state.marks.get(id_)
    if mark is None:
        mark = state.marks[id_] = Mark(id_, event.provider_id, event.channel, event.session, 0)
    mark.acked = event.last
    payload, number = event.payload, state.last_event
    where = (event.provider_id, event.channel, event.session, event.first, event.last)
    state.touched["mark"][id_] = mark
    state.touched["evidence"][number] = Evidence(number, *where, payload.size, payload.digest, payload.inline)
