"""How far each session's evidence has come: the highest contiguous sequence that is durable."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.event import Decided, Event, Payload, enclose
from holdfast.core.evidence.letters import Dead, Letters, burials, why_not_buried
from holdfast.core.provider.record import Registry
from holdfast.core.refusal import Refused
from holdfast.core.values import Digest, EventNo, ProviderId

SESSION_MAX = 128
RECORDS_BYTES_MAX = 4 << 20
NOBODY: Final = ProviderId(b"")
"""Stands where the channel of an older sender (v0.1) has no provider."""
_PROVIDER_CHANNEL: Final = re.compile(r"[0-9a-fA-F]{64}")


class Ending(IntEnum):
    """What the last record says about the session's end (SP-RET-001)."""

    NONE = 0
    FENCE = 1
    """It may be the end: it is where the session is known to be closed."""
    TERMINATED = 2


class TakeEvidence(msgspec.Struct, frozen=True, gc=False):
    """Records of a session, in order and without gaps: lines as they were spooled, checked before they came here."""

    provider_id: ProviderId
    channel: str
    session: str
    first: int
    last: int
    lines: bytes
    dead: tuple[Dead, ...] = ()
    """Those of them that are refused for good."""
    ending: Ending = Ending.NONE


class EvidenceTaken(Event, frozen=True, tag=92):
    """The node holds these records."""

    provider_id: ProviderId
    channel: str
    session: str
    first: int
    last: int
    payload: Payload
    ending: int = 0
    at_ms: int = 0
    """0 in histories from before sessions had an end here."""


class SessionSealed(Event, frozen=True, tag=95):
    """Nothing more is expected of this session."""

    channel: str
    session: str
    reason: str
    at_ms: int


class Mark(msgspec.Struct, array_like=True, gc=False):
    """How far one session has come; a row of the table `mark`. It stays for ever."""

    id: str
    provider_id: ProviderId
    channel: str
    session: str
    acked: int
    ending: int = 0
    at_ms: int = 0
    """When its last records were taken."""
    sealed_ms: int = 0
    pruned: int = 0
    """Records up to this one were let go of."""


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


class Begun(msgspec.Struct, gc=False):
    """What is known of a channel without looking at its sessions."""

    sessions: int = 0
    newest: str = ""
    """The mark's id of the session that began last."""


class Witnessing(Registry, Letters, Protocol):
    """What this station needs of the state."""

    marks: dict[str, Mark]
    begun: dict[str, Begun]
    """By channel; counted anew when a snapshot is read."""
    owners: dict[str, str]
    """Whose certificate the channel of an older sender wants, where that is not the channel's own name."""


def mark_id(channel: str, session: str) -> str:
    return f"{channel}/{session}"


def acked(state: Witnessing, channel: str, session: str) -> int:
    """EVD-002: the highest contiguous sequence that the node holds, 0 where it holds nothing."""
    mark = state.marks.get(mark_id(channel, session))
    return mark.acked if mark is not None else 0


def is_final(mark: Mark) -> bool:
    """SP-RET-001: terminated, or ended with a fence and known to be closed, or sealed by an operator."""
    return mark.ending == Ending.TERMINATED or mark.sealed_ms > 0


def is_providers(channel: str) -> bool:
    """The channels of providers are their ids; nobody else may use such a name."""
    return _PROVIDER_CHANNEL.fullmatch(channel) is not None


# ------------------------------------------------------------------------------------------------ deciding


def take(state: Witnessing, command: TakeEvidence, now_ms: int) -> Decided | Refused:
    """EVD-002: what follows the mark is taken, what is at or below it was taken before, a gap is refused."""
    if no := _why_not_channel(state, command) or _why_not_records(command):
        return no
    mark = acked(state, command.channel, command.session)
    if command.last <= mark:
        return Decided((), since=state.last_event)
    if command.first != mark + 1:
        says = f"{command.channel}/{command.session}: {command.first} does not follow {mark}"
        return Refused("EVD-002", says, "send again from the mark", "EvidenceGap")
    if no := _why_not_begun(state, command) or why_not_buried(state, command.channel, command.dead):
        return no
    payload, attachments = enclose(command.lines, state.policy.engine.inline_payload_bytes_max)
    where = (command.provider_id, command.channel, command.session)
    taken = EvidenceTaken(*where, command.first, command.last, payload, command.ending, now_ms)
    buried, beside = burials(state, where, command.dead, now_ms)
    return Decided((taken, *buried, *_closed_by(state, command, now_ms)), (*attachments, *beside))


def _why_not_channel(state: Witnessing, command: TakeEvidence) -> Refused | None:
    if command.provider_id == NOBODY:
        if is_providers(command.channel):
            return Refused("EVD-001", "the channel is a provider's", "its provider sends for it, signed", "Forbidden")
        return None
    if command.provider_id not in state.providers:
        return Refused("EVD-001", f"no provider {command.provider_id.hex()}", "register first", "NotFound")
    if command.channel != command.provider_id.hex():
        return Refused("EVD-001", "the channel is another provider's", name="Forbidden")
    return None


def _why_not_records(command: TakeEvidence) -> Refused | None:
    if not 1 <= len(command.session) <= SESSION_MAX or not 1 <= command.first <= command.last < 2**63:
        return Refused("EVD-001", "session or sequence out of range", name="InvalidParams")
    if not 0 < len(command.lines) <= RECORDS_BYTES_MAX:
        return Refused("EVD-001", f"records: {len(command.lines)} bytes", "send fewer at a time", "TooLarge")
    if any(not command.first <= each.sequence <= command.last for each in command.dead):
        return Refused("EVD-007", "a dead letter outside of the records", name="InvalidParams")
    return None


def _why_not_begun(state: Witnessing, command: TakeEvidence) -> Refused | None:
    """A mark stays in memory for ever, so that what one channel may begin has a bound."""
    if command.first != 1:
        return None
    limits, known = state.policy.evidence, state.begun.get(command.channel)
    if known is not None and known.sessions >= limits.sessions_per_channel_max:
        says = f"{command.channel} has had {known.sessions} sessions, at most {limits.sessions_per_channel_max}"
        return Refused("EVD-001", says, "raise policy.evidence.sessions_per_channel_max", "TooLarge")
    if known is None and command.provider_id == NOBODY:
        older = sum(not is_providers(channel) for channel in state.begun)
        if older >= limits.legacy_channels_max:
            says = f"{older} channels of older senders, at most {limits.legacy_channels_max}"
            return Refused("EVD-009", says, "raise policy.evidence.legacy_channels_max", "TooLarge")
    return None


def _closed_by(state: Witnessing, command: TakeEvidence, now_ms: int) -> tuple[Event, ...]:
    """SP-RET-001: a channel has one live session; where a newer one begins, one that ended with a fence is closed."""
    known = state.begun.get(command.channel)
    if command.first != 1 or known is None:
        return ()
    before = state.marks[known.newest]
    if before.ending != Ending.FENCE or before.sealed_ms:
        return ()
    return (SessionSealed(before.channel, before.session, "a newer session began", now_ms),)


# ------------------------------------------------------------------------------------------------ applying


def apply_taken(state: Witnessing, event: EvidenceTaken) -> None:
    id_ = mark_id(event.channel, event.session)
    mark = state.marks.get(id_)
    if mark is None:
        mark = state.marks[id_] = Mark(id_, event.provider_id, event.channel, event.session, 0)
        begin(state.begun, mark)
    mark.acked = event.last
    if event.at_ms:  # whatever comes after an end makes it none
        mark.ending, mark.at_ms, mark.sealed_ms = event.ending, event.at_ms, 0
    payload, number = event.payload, state.last_event
    where = (event.provider_id, event.channel, event.session, event.first, event.last)
    state.touched["mark"][id_] = mark
    state.touched["evidence"][number] = Evidence(number, *where, payload.size, payload.digest, payload.inline)


def begin(begun: dict[str, Begun], mark: Mark) -> None:
    """Count a session; marks are in the order in which they began, also in a snapshot."""
    channel = begun.setdefault(mark.channel, Begun())
    channel.sessions += 1
    channel.newest = mark.id


def counted(marks: dict[str, Mark]) -> dict[str, Begun]:
    begun: dict[str, Begun] = {}
    for mark in marks.values():
        begin(begun, mark)
    return begun
