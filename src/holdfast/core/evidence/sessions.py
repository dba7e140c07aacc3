"""The end of sessions at the node: they are sealed, and their records pruned as policy allows (EVD-008)."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.records import record_from
from holdfast.core.evidence.messages import (
    AssignChannel,
    ChannelAssigned,
    EvidencePruned,
    PruneEvidence,
    SealSession,
    SessionSealed,
)
from holdfast.core.evidence.model import HasEvidence, SessionWatermark, is_final, is_provider_channel, watermark_id
from holdfast.core.policy import DAY_MS

PRUNE_ROWS_MAX: Final = 1_000
"""How many rows one command prunes."""
OWNER_MAX: Final = 64


# ------------------------------------------------------------------------------------------------ sealing


def seal_session(state: HasEvidence, command: SealSession, now_ms: int) -> Decided | Refused:
    watermark = _watermark(state, command.channel, command.session)
    if isinstance(watermark, Refused):
        return watermark
    if is_final(watermark):
        return Decided((), repeat_of=state.last_event)
    return Decided((SessionSealed(command.channel, command.session, "sealed by an operator", now_ms),))


def apply_sealed(state: HasEvidence, event: SessionSealed) -> None:
    watermark = state.watermarks[watermark_id(event.channel, event.session)]
    watermark.sealed_ms = event.at_ms
    state.touched["watermark"][watermark.id] = watermark


# ------------------------------------------------------------------------------------------------ pruning


def prunable_ms(watermark: SessionWatermark, retain_days: int) -> int:
    """From when on the session's records may be pruned."""
    return max(watermark.at_ms, watermark.sealed_ms) + retain_days * DAY_MS


def why_not_pruned(state: HasEvidence, watermark: SessionWatermark, now_ms: int) -> Refused | None:
    """EVD-008: only final sessions are pruned, after the time that policy sets."""
    retain_days = state.policy.evidence.retain_days
    if retain_days is None:
        return Refused("EVD-008", "evidence is kept for ever", "set policy.evidence.retain_days")
    if not is_final(watermark):
        return Refused("EVD-008", f"{watermark.id} is not final", "holdfast evidence seal", "NotFinal")
    if now_ms < (due_ms := prunable_ms(watermark, retain_days)):
        return Refused("EVD-008", f"{watermark.id} is kept for {due_ms - now_ms} ms more", "wait")
    return None


def prune_evidence(state: HasEvidence, command: PruneEvidence, now_ms: int) -> Decided | Refused:
    watermark = _watermark(state, command.channel, command.session)
    if isinstance(watermark, Refused):
        return watermark
    if refusal := why_not_pruned(state, watermark, now_ms):
        return refusal
    if command.until <= watermark.pruned:
        return Decided((), repeat_of=state.last_event)
    if command.until > watermark.acked or not 0 < len(command.rows) <= PRUNE_ROWS_MAX:
        return Refused("EVD-008", "rows or records out of range", name="InvalidParams")
    return Decided((record_from(EvidencePruned, command, at_ms=now_ms),))


def apply_pruned(state: HasEvidence, event: EvidencePruned) -> None:
    watermark = state.watermarks[watermark_id(event.channel, event.session)]
    watermark.pruned = event.until
    state.touched["watermark"][watermark.id] = watermark
    for row in event.rows:
        state.touched["evidence"][row] = None
    for place in event.logs:
        state.touched["work_log"][place] = None


# ------------------------------------------------------------------------------------------------ owners


def owner_of(state: HasEvidence, channel: str) -> str:
    """EVD-009: the certificate name that may send for this channel; its own name unless an operator set another."""
    return state.channel_owners.get(channel, channel)


def assign_channel(state: HasEvidence, command: AssignChannel, now_ms: int) -> Decided | Refused:
    if is_provider_channel(command.channel):
        return Refused("EVD-009", "the channel is a provider's", "only that provider may send on it", "Forbidden")
    if len(command.owner) > OWNER_MAX or not 1 <= len(command.channel) <= 128:
        return Refused("EVD-009", f"owner: at most {OWNER_MAX} characters, channel: 1 to 128", name="InvalidParams")
    if (command.owner or command.channel) == owner_of(state, command.channel):
        return Decided((), repeat_of=state.last_event)
    return Decided((ChannelAssigned(command.channel, command.owner, now_ms),))


def apply_assigned(state: HasEvidence, event: ChannelAssigned) -> None:
    if event.owner and event.owner != event.channel:
        state.channel_owners[event.channel] = event.owner
    else:
        state.channel_owners.pop(event.channel, None)


def _watermark(state: HasEvidence, channel: str, session: str) -> SessionWatermark | Refused:
    watermark = state.watermarks.get(watermark_id(channel, session))
    if watermark is None:
        return Refused("EVD-001", f"no session {session[:128]!r} of channel {channel[:128]!r}", name="NotFound")
    return watermark
