"""Dead letters (EVD-007): permanently refused records, kept with the reason until an operator resolves them."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Attachment, Decided, make_payload
from holdfast.core.base.handlers import Decide
from holdfast.core.base.records import record_from
from holdfast.core.base.values import add_count
from holdfast.core.evidence.messages import (
    DeadLetterResolved,
    RecordDeadLettered,
    RejectedRecord,
    ResolveDeadLetter,
    StoreEvidence,
)
from holdfast.core.evidence.model import DeadLetter, DeadLetterStatus, HasEvidence

RAW_BYTES_MAX: Final = 1 << 20
"""How many bytes of a record are kept; of a larger one its beginning, its size and its digest."""
REASON_MAX: Final = 200
NOTE_MAX: Final = 200
_LIST_HINT: Final = "an operator resolves them: holdfast evidence dead-letter list"


def check_dead_letter_limit(state: HasEvidence, channel: str, rejected: tuple[RejectedRecord, ...]) -> Refused | None:
    """EVD-007: the number of waiting dead letters is bounded for each channel, so that no sender fills the memory."""
    most = state.policy.evidence.dead_letters_per_channel_max
    if not rejected or state.dead_letters_waiting.get(channel, 0) + len(rejected) <= most:
        return None
    message = f"{channel}: {most} dead letters wait already"
    return Refused("EVD-007", message, _LIST_HINT, "DeadLettersFull")


def dead_letter_events(
    state: HasEvidence, source: StoreEvidence, now_ms: int
) -> tuple[list[RecordDeadLettered], list[Attachment]]:
    """EVD-007: the rejected records of a received message, each as a dead letter."""
    events, attachments = list[RecordDeadLettered](), list[Attachment]()
    for rejected in source.rejected:
        payload, rows = make_payload(rejected.raw[:RAW_BYTES_MAX], state.policy.engine.inline_payload_bytes_max)
        attachments += rows
        events.append(
            record_from(
                RecordDeadLettered,
                rejected,
                provider_id=source.provider_id,
                channel=source.channel,
                session=source.session,
                reason=rejected.reason[:REASON_MAX],
                payload=payload,
                at_ms=now_ms,
            )
        )
    return events, attachments


def apply_dead_lettered(state: HasEvidence, event: RecordDeadLettered) -> None:
    dead_letter = record_from(DeadLetter, event, event=state.last_event)
    state.dead_letters[dead_letter.event] = state.touched["dead_letter"][dead_letter.event] = dead_letter
    add_count(state.dead_letters_waiting, event.channel, 1)


def resolve_dead_letter(
    state: HasEvidence, command: ResolveDeadLetter, now_ms: int, decide: Decide
) -> Decided | Refused:
    """EVD-007: the retried command and the end of the dead letter are one decision, or neither happens."""
    dead_letter = state.dead_letters.get(command.event)
    if dead_letter is None:
        return Refused("EVD-007", f"no dead letter {command.event} waits", _LIST_HINT, "NotFound")
    if len(command.note) > NOTE_MAX:
        return Refused("EVD-007", f"note: {len(command.note)} characters, at most {NOTE_MAX}", name="InvalidParams")
    status = DeadLetterStatus.SETTLED if command.retry_command is None else DeadLetterStatus.RETRIED
    retried = Decided(()) if command.retry_command is None else decide(state, command.retry_command, now_ms)
    if isinstance(retried, Refused):
        return retried
    resolved = DeadLetterResolved(command.event, dead_letter.channel, status, command.note, now_ms)
    return Decided((resolved, *retried.events), retried.attachments)


def apply_resolved(state: HasEvidence, event: DeadLetterResolved) -> None:
    dead_letter = state.dead_letters.pop(event.event)
    dead_letter.status, dead_letter.note, dead_letter.ended_ms = event.status, event.note, event.at_ms
    add_count(state.dead_letters_waiting, event.channel, -1)
    state.touched["dead_letter"][event.event] = dead_letter
