"""Who has a notice (NTC-004): a validator that stored it signs its root; until all have, it is sent again."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from holdfast.core.archive.messages import BlobArchived, ConfirmNotice, NoticeConfirmed
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.values import Height
from holdfast.core.blob.model import HasBlobs, Unconfirmed, place_of
from holdfast.core.validator.model import validator_set

ACK_TAG: Final = b"HoldfastNoticeAckV1"


def ack_root(root: bytes) -> bytes:
    """The 32 bytes that a confirmation is a signature of."""
    return sha256(ACK_TAG + root).digest()


def confirm_notice(state: HasBlobs, command: ConfirmNotice, _now_ms: int) -> Decided | Refused:
    waiting = state.notices_unconfirmed.get(place_of(command.height, command.number))
    if waiting is None or command.key in waiting.confirmed:
        return Decided((), repeat_of=state.last_event)
    if command.key not in current_validators(state):
        return Refused("NTC-004", f"{command.key.hex()} is no validator", name="UnknownValidator")
    if command.root != waiting.root:
        return Refused("NTC-004", "this confirms another notice", "the notice is sent again", "RootMismatch")
    if not command.verify(command.key, ack_root(command.root), command.signature):
        return Refused("NTC-004", "signature verification failed", name="BadSignature")
    return Decided((NoticeConfirmed(command.height, command.number, command.key),))


def apply_confirmed(state: HasBlobs, event: NoticeConfirmed) -> None:
    place = place_of(event.height, event.number)
    waiting = state.notices_unconfirmed.get(place)
    if waiting is None:
        return
    waiting.confirmed.append(event.key)
    if not missing_validators(state, waiting):
        del state.notices_unconfirmed[place]


def await_confirmations(state: HasBlobs, event: BlobArchived) -> None:
    """A new record is sent to the others. What waits is bounded: who is away for long finds items in the archive."""
    place = place_of(event.height, event.number)
    waiting = Unconfirmed(event.root, [event.signer])
    state.notices_unconfirmed.pop(place, None)
    if not event.root or not missing_validators(state, waiting):
        return
    state.notices_unconfirmed[place] = waiting
    if len(state.notices_unconfirmed) > state.policy.archive.notices_waiting_max:
        pruned = (each for each in state.notices_unconfirmed if _is_gone(state, each))
        if (oldest := next(pruned, None)) is not None:
            del state.notices_unconfirmed[oldest]


def _is_gone(state: HasBlobs, place: bytes) -> bool:
    lives = state.blob_heights.get(Height(int.from_bytes(place[:8], "big")))
    return lives is None or bool(lives[0].blob.is_pruned)


def current_validators(state: HasBlobs) -> list[bytes]:
    return validator_set(state).at(state.open_height)


def missing_validators(state: HasBlobs, waiting: Unconfirmed) -> list[bytes]:
    """The validators that have not confirmed a notice."""
    return [key for key in current_validators(state) if key not in waiting.confirmed]


def why_not_quorum(state: HasBlobs, height: Height) -> Refused | None:
    """`prune_quorum`: two thirds of the validators have the record of every blob."""
    validators = current_validators(state)
    for live in state.blob_heights[height]:
        waiting = state.notices_unconfirmed.get(place_of(height, live.blob.number))
        if waiting is None:
            continue
        confirmed = sum(key in waiting.confirmed for key in validators)
        if confirmed * 3 < len(validators) * 2:
            message = f"{confirmed} of {len(validators)} validators have confirmed blob {live.blob.number} of {height}"
            return Refused("PRU-001", message, "two thirds must: policy.archive.prune_quorum")
    return None
