"""The end of sessions at the node: sealed, and their records let go of when policy says so (EVD-008)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.event import Decided, Event
from holdfast.core.evidence.marks import Mark, SessionSealed, Witnessing, is_final, is_providers, mark_id
from holdfast.core.policy.knobs import DAY_MS
from holdfast.core.refusal import Refused
from holdfast.core.values import EventNo

ROWS_MAX: Final = 1_000
"""Rows that one command lets go of."""
OWNER_MAX: Final = 64


class SealSession(msgspec.Struct, frozen=True, gc=False):
    """An operator says that nothing more comes of a session that has no end of its own (SP-RET-001)."""

    channel: str
    session: str


class PruneEvidence(msgspec.Struct, frozen=True, gc=False):
    """Let go of the oldest records of a session: these rows, which hold its records up to `until`."""

    channel: str
    session: str
    until: int
    rows: tuple[EventNo, ...]


class EvidencePruned(Event, frozen=True, tag=96):
    """The records of a finished session up to this one were let go of; its mark stays."""

    channel: str
    session: str
    until: int
    rows: tuple[EventNo, ...]
    at_ms: int


class AssignChannel(msgspec.Struct, frozen=True, gc=False):
    """Whose certificate the channel of an older sender wants (EVD-009); an empty name gives it back to its own."""

    channel: str
    owner: str


class ChannelAssigned(Event, frozen=True, tag=130):
    """From now on the channel is this certificate's."""

    channel: str
    owner: str
    at_ms: int


# ------------------------------------------------------------------------------------------------ sealing


def seal(state: Witnessing, command: SealSession, now_ms: int) -> Decided | Refused:
    mark = _mark(state, command.channel, command.session)
    if isinstance(mark, Refused):
        return mark
    if is_final(mark):
        return Decided((), since=state.last_event)
    return Decided((SessionSealed(command.channel, command.session, "sealed by an operator", now_ms),))


def apply_sealed(state: Witnessing, event: SessionSealed) -> None:
    mark = state.marks[mark_id(event.channel, event.session)]
    mark.sealed_ms = event.at_ms
    state.touched["mark"][mark.id] = mark


# ------------------------------------------------------------------------------------------------ pruning


def prunable_ms(mark: Mark, retain_days: int) -> int:
    """From when on the session's records may go."""
    return max(mark.at_ms, mark.sealed_ms) + retain_days * DAY_MS


def why_not_pruned(state: Witnessing, mark: Mark, now_ms: int) -> Refused | None:
    """EVD-008: only what is final, only after the time that policy gives it."""
    retain_days = state.policy.evidence.retain_days
    if retain_days is None:
        return Refused("EVD-008", "evidence is kept for ever", "set policy.evidence.retain_days")
    if not is_final(mark):
        return Refused("EVD-008", f"{mark.id} is not final", "holdfast evidence seal", "NotFinal")
    if now_ms < (due_ms := prunable_ms(mark, retain_days)):
        return Refused("EVD-008", f"{mark.id} is kept for {due_ms - now_ms} ms more", "wait")
    return None


def prune(state: Witnessing, command: PruneEvidence, now_ms: int) -> Decided | Refused:
    mark = _mark(state, command.channel, command.session)
    if isinstance(mark, Refused):
        return mark
    if no := why_not_pruned(state, mark, now_ms):
        return no
    if command.until <= mark.pruned:
        return Decided((), since=state.last_event)
    if command.until > mark.acked or not 0 < len(command.rows) <= ROWS_MAX:
        return Refused("EVD-008", "rows or records out of range", name="InvalidParams")
    return Decided((EvidencePruned(command.channel, command.session, command.until, command.rows, now_ms),))


def apply_pruned(state: Witnessing, event: EvidencePruned) -> None:
    mark = state.marks[mark_id(event.channel, event.session)]
    mark.pruned = event.until
    state.touched["mark"][mark.id] = mark
    for row in event.rows:
        state.touched["evidence"][row] = None


# ------------------------------------------------------------------------------------------------ owners


def owner_of(state: Witnessing, channel: str) -> str:
    """EVD-009: the name in the certificate that may send for this channel; its own unless an operator said another."""
    return state.owners.get(channel, channel)


def assign(state: Witnessing, command: AssignChannel, now_ms: int) -> Decided | Refused:
    if is_providers(command.channel):
        return Refused("EVD-009", "the channel is a provider's", "only its key opens it", "Forbidden")
    if len(command.owner) > OWNER_MAX or not 1 <= len(command.channel) <= 128:
        return Refused("EVD-009", f"owner: at most {OWNER_MAX} characters, channel: 1 to 128", name="InvalidParams")
    if (command.owner or command.channel) == owner_of(state, command.channel):
        return Decided((), since=state.last_event)
    return Decided((ChannelAssigned(command.channel, command.owner, now_ms),))


def apply_assigned(state: Witnessing, event: ChannelAssigned) -> None:
    if event.owner and event.owner != event.channel:
        state.owners[event.channel] = event.owner
    else:
        state.owners.pop(event.channel, None)


def _mark(state: Witnessing, channel: str, session: str) -> Mark | Refused:
    mark = state.marks.get(mark_id(channel, session))
    if mark is None:
        return Refused("EVD-001", f"no session {session[:128]!r} of channel {channel[:128]!r}", name="NotFound")
    return mark
