"""How far each session's evidence is stored: the highest contiguous sequence."""

from __future__ import annotations

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event, make_payload
from holdfast.core.base.records import record_from
from holdfast.core.base.values import LeaseId
from holdfast.core.evidence.dead_letters import check_dead_letter_limit, dead_letter_events
from holdfast.core.evidence.messages import EvidenceStored, SessionSealed, StoreEvidence
from holdfast.core.evidence.model import (
    LEASES_PER_RUN_MAX,
    NO_PROVIDER,
    RECORDS_BYTES_MAX,
    SESSION_MAX,
    Evidence,
    HasEvidence,
    SessionEnd,
    SessionWatermark,
    WorkMessages,
    acked_sequence,
    count_session,
    is_provider_channel,
    watermark_id,
    work_log_place,
)
from holdfast.core.policy import UnstakedEvidence
from holdfast.core.provider.invitations import invited_provider_key, is_invited

# ------------------------------------------------------------------------------------------------ deciding


def store_evidence(state: HasEvidence, command: StoreEvidence, now_ms: int) -> Decided | Refused:
    """EVD-002: records after the watermark are stored, those at or below it are a repeat, a gap is refused."""
    if refusal := _why_not_channel(state, command) or _why_not_records(command):
        return refusal
    watermark = acked_sequence(state, command.channel, command.session)
    if command.last <= watermark:
        return Decided((), repeat_of=state.last_event)
    if command.first != watermark + 1:
        message = f"{command.channel}/{command.session}: {command.first} does not follow {watermark}"
        return Refused("EVD-002", message, "send again from the watermark", "EvidenceGap")
    if refusal := _why_not_new_session(state, command) or check_dead_letter_limit(
        state, command.channel, command.rejected
    ):
        return refusal
    payload, attachments = make_payload(command.lines, state.policy.engine.inline_payload_bytes_max, command.digest)
    stored = record_from(EvidenceStored, command, payload=payload, at_ms=now_ms, leases=_own_leases(state, command))
    dead_letters, rows = dead_letter_events(state, command, now_ms)
    return Decided((stored, *dead_letters, *_seal_previous_session(state, command, now_ms)), (*attachments, *rows))


def _own_leases(state: HasEvidence, command: StoreEvidence) -> tuple[LeaseId, ...]:
    """JOB-010: what a provider says of another one's work is evidence, and no message to that job's caller."""
    if not command.leases:
        return ()
    own = state.leases.by_provider.get(command.provider_id, {})
    return tuple(lease_id for lease_id in dict.fromkeys(command.leases) if lease_id in own)[:LEASES_PER_RUN_MAX]


def _why_not_channel(state: HasEvidence, command: StoreEvidence) -> Refused | None:
    if command.provider_id == NO_PROVIDER:
        if is_provider_channel(command.channel):
            return Refused(
                "EVD-001", "the channel is a provider's", "only that provider may send on it, signed", "Forbidden"
            )
        return None
    if command.provider_id not in state.providers:
        return Refused("EVD-001", f"no provider {command.provider_id.hex()}", "register first", "NotFound")
    if command.channel != command.provider_id.hex():
        return Refused("EVD-001", "the channel is another provider's", name="Forbidden")
    if _needs_invitation(state, command) and not is_invited(state, command.provider_id):
        hint = "stake, or ask the operator for an invitation: `holdfast provider invite`"
        return Refused("SEC-002", "evidence of a provider without stake or invitation is not stored", hint, "Forbidden")
    return None


def _needs_invitation(state: HasEvidence, command: StoreEvidence) -> bool:
    """SEC-002: where policy says so, a registration that costs nothing buys no place in the journal."""
    if state.policy.evidence.unstaked is UnstakedEvidence.OPEN:
        return False
    provider = state.providers.get(command.provider_id)
    return provider is not None and not provider.at_stake


def invitation_keys(state: HasEvidence, command: StoreEvidence) -> tuple[bytes, ...]:
    """The claim that the decision needs."""
    return (invited_provider_key(command.provider_id),) if _needs_invitation(state, command) else ()


def _why_not_records(command: StoreEvidence) -> Refused | None:
    if not 1 <= len(command.session) <= SESSION_MAX or not 1 <= command.first <= command.last < 2**63:
        return Refused("EVD-001", "session or sequence out of range", name="InvalidParams")
    if not 0 < len(command.lines) <= RECORDS_BYTES_MAX:
        return Refused("EVD-001", f"records: {len(command.lines)} bytes", "send fewer at a time", "TooLarge")
    if any(not command.first <= rejected.sequence <= command.last for rejected in command.rejected):
        return Refused("EVD-007", "a dead letter outside of the records", name="InvalidParams")
    return None


def _why_not_new_session(state: HasEvidence, command: StoreEvidence) -> Refused | None:
    """Watermarks stay in memory for ever, so the number of sessions of a channel is bounded."""
    if command.first != 1:
        return None
    limits, known = state.policy.evidence, state.channel_sessions.get(command.channel)
    if known is not None and known.sessions >= limits.sessions_per_channel_max:
        message = f"{command.channel} has had {known.sessions} sessions, at most {limits.sessions_per_channel_max}"
        return Refused("EVD-001", message, "raise policy.evidence.sessions_per_channel_max", "TooLarge")
    if known is None and command.provider_id == NO_PROVIDER:
        legacy = sum(not is_provider_channel(channel) for channel in state.channel_sessions)
        if legacy >= limits.legacy_channels_max:
            message = f"{legacy} channels of v0.1 senders, at most {limits.legacy_channels_max}"
            return Refused("EVD-009", message, "raise policy.evidence.legacy_channels_max", "TooLarge")
    return None


def _seal_previous_session(state: HasEvidence, command: StoreEvidence, now_ms: int) -> tuple[Event, ...]:
    """SP-RET-001: a channel has one live session; the begin of a newer one closes one that ended with a fence."""
    known = state.channel_sessions.get(command.channel)
    if command.first != 1 or known is None:
        return ()
    before = state.watermarks[known.newest_id]
    if before.ending != SessionEnd.FENCE or before.sealed_ms:
        return ()
    return (SessionSealed(before.channel, before.session, "a newer session began", now_ms),)


# ------------------------------------------------------------------------------------------------ applying


def apply_stored(state: HasEvidence, event: EvidenceStored) -> None:
    id_ = watermark_id(event.channel, event.session)
    watermark = state.watermarks.get(id_)
    if watermark is None:
        watermark = state.watermarks[id_] = SessionWatermark(id_, event.provider_id, event.channel, event.session, 0)
        count_session(state.channel_sessions, watermark)
    watermark.acked = event.last
    if event.at_ms:  # records after an end reopen the session
        watermark.ending, watermark.at_ms, watermark.sealed_ms = event.ending, event.at_ms, 0
    payload, number = event.payload, state.last_event
    state.touched["watermark"][id_] = watermark
    state.touched["evidence"][number] = record_from(
        Evidence,
        event,
        event=number,
        first_sequence=event.first,
        last_sequence=event.last,
        size=payload.size,
        digest=payload.digest,
        lines=payload.inline,
        leases=len(event.leases),
    )
    for at, lease_id in enumerate(event.leases):
        lease, place = state.leases.by_id[lease_id], work_log_place(number, at)
        job = state.queue.jobs[lease.job_id]
        state.touched["work_log"][place] = WorkMessages(
            place=place, event=number, task_id=job.parent or job.id, lease_id=lease_id, attempt=lease.attempt
        )
