"""Dead letters (EVD-007): records that are refused for good, kept with the reason until an operator deals with them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from holdfast.core.event import Attachment, Decided, Event, Payload, enclose
from holdfast.core.policy import Policy
from holdfast.core.refusal import Refused
from holdfast.core.touch import Touched
from holdfast.core.values import Digest, EventNo, ProviderId

RAW_BYTES_MAX: Final = 1 << 20
"""So much of a record is kept; of a larger one its beginning, its size and its digest."""
REASON_MAX: Final = 200
NOTE_MAX: Final = 200
_LIST: Final = "an operator deals with them: holdfast evidence dead-letter list"


class Standing(StrEnum):
    """What has become of a dead letter."""

    WAITING = "WAITING"
    RETRIED = "RETRIED"
    SETTLED = "SETTLED"


class Dead(msgspec.Struct, frozen=True, gc=False):
    """One record of a command that is refused for good."""

    sequence: int
    name: str
    reason: str
    raw: bytes
    """Its bytes, or how they begin."""
    size: int
    digest: Digest
    """Of all its bytes."""
    is_stored: bool = False
    """It is a record and stands in its place; where it is none, a line that says so stands there."""


class EvidenceBuried(Event, frozen=True, tag=93):
    """A record has taken its place in the session and is refused for good."""

    provider_id: ProviderId
    channel: str
    session: str
    sequence: int
    name: str
    reason: str
    payload: Payload
    size: int
    digest: Digest
    is_stored: bool
    at_ms: int


class DeadLetter(msgspec.Struct, array_like=True, gc=False):
    """A row of the table `dead_letter`; in memory while it waits. Its bytes are in the event, or beside its batch."""

    event: EventNo
    provider_id: ProviderId
    channel: str
    session: str
    sequence: int
    name: str
    reason: str
    size: int
    digest: Digest
    at_ms: int
    status: Standing = Standing.WAITING
    ended_ms: int = 0
    note: str = ""


class ReleaseLetter(msgspec.Struct, frozen=True, gc=False):
    """An operator deals with a dead letter: what the record asked for is tried again, or it is settled."""

    event: EventNo
    note: str = ""
    ask: Any = None
    """The command to try; the letter stays where that is refused."""


class LetterReleased(Event, frozen=True, tag=94):
    """A dead letter was dealt with."""

    event: EventNo
    channel: str
    status: Standing
    note: str
    at_ms: int


Decide = Callable[[Any, Any, int], Decided | Refused]
"""How any command is decided."""


class Letters(Protocol):
    """What this station needs of the state."""

    policy: Policy
    touched: Touched
    last_event: EventNo
    letters: dict[EventNo, DeadLetter]
    buried: dict[str, int]
    """How many letters of a channel wait; counted anew when a snapshot is read."""


def why_not_buried(state: Letters, channel: str, dead: tuple[Dead, ...]) -> Refused | None:
    """EVD-007: what waits for an operator has a bound, channel by channel, so that nobody fills the memory."""
    most = state.policy.evidence.dead_letters_per_channel_max
    if not dead or state.buried.get(channel, 0) + len(dead) <= most:
        return None
    says = f"{channel}: {most} dead letters wait already"
    return Refused("EVD-007", says, _LIST, "DeadLettersFull")


def burials(
    state: Letters, where: tuple[ProviderId, str, str], dead: tuple[Dead, ...], now_ms: int
) -> tuple[list[EvidenceBuried], list[Attachment]]:
    events, attachments = list[EvidenceBuried](), list[Attachment]()
    for each in dead:
        payload, beside = enclose(each.raw[:RAW_BYTES_MAX], state.policy.engine.inline_payload_bytes_max)
        attachments += beside
        why, what = (each.sequence, each.name, each.reason[:REASON_MAX]), (each.size, each.digest, each.is_stored)
        events.append(EvidenceBuried(*where, *why, payload, *what, now_ms))
    return events, attachments


def apply_buried(state: Letters, event: EvidenceBuried) -> None:
    number = state.last_event
    where = (event.provider_id, event.channel, event.session, event.sequence)
    letter = DeadLetter(number, *where, event.name, event.reason, event.size, event.digest, event.at_ms)
    state.letters[number] = letter
    state.buried[event.channel] = state.buried.get(event.channel, 0) + 1
    state.touched["dead_letter"][number] = letter


def release(state: Letters, command: ReleaseLetter, now_ms: int, decide: Decide) -> Decided | Refused:
    """EVD-007: what the record asked for, and that its letter is dealt with, in one decision or not at all."""
    letter = state.letters.get(command.event)
    if letter is None:
        return Refused("EVD-007", f"no dead letter {command.event} waits", _LIST, "NotFound")
    if len(command.note) > NOTE_MAX:
        return Refused("EVD-007", f"note: {len(command.note)} characters, at most {NOTE_MAX}", name="InvalidParams")
    status = Standing.SETTLED if command.ask is None else Standing.RETRIED
    asked = Decided(()) if command.ask is None else decide(state, command.ask, now_ms)
    if isinstance(asked, Refused):
        return asked
    told = LetterReleased(command.event, letter.channel, status, command.note, now_ms)
    return Decided((told, *asked.events), asked.attachments)


def apply_released(state: Letters, event: LetterReleased) -> None:
    letter = state.letters.pop(event.event)
    letter.status, letter.note, letter.ended_ms = event.status, event.note, event.at_ms
    left = state.buried[event.channel] - 1
    if left:
        state.buried[event.channel] = left
    else:
        del state.buried[event.channel]
    state.touched["dead_letter"][event.event] = letter


def counted(letters: dict[EventNo, DeadLetter]) -> dict[str, int]:
    """How many wait, by channel."""
    found: dict[str, int] = {}
    for letter in letters.values():
        found[letter.channel] = found.get(letter.channel, 0) + 1
    return found
