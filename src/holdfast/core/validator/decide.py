"""Whether the set of validators may change, and whether a key may propose (NTC-002, NTC-005)."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.values import Height
from holdfast.core.validator.messages import (
    AddValidator,
    ProposerSucceeded,
    RemoveValidator,
    SucceedProposer,
    ValidatorAdded,
    ValidatorRemoved,
)
from holdfast.core.validator.model import HasValidators, validator_set

KEY_BYTES: Final = 32
VALIDATORS_MAX: Final = 256
ADD_HINT: Final = "holdfast validator add KEY"


def add_validator(state: HasValidators, command: AddValidator, _now_ms: int) -> Decided | Refused:
    key, next_height = command.key, Height(state.open_height + 1)
    if len(key) != KEY_BYTES:
        return Refused("NTC-005", f"a key has {KEY_BYTES} bytes, not {len(key)}", name="InvalidParams")
    if not state.validators:
        hint = "the first one is the key that seals the first block with blobs"
        return Refused("NTC-005", "there is no set of validators yet", hint)
    if key in state.validators_ended:
        return Refused("NTC-005", "this key has left the set", "a key that has left does not return: add a new one")
    if key in state.validators:
        return Decided((), repeat_of=state.last_event)
    if len(validator_set(state).at(next_height)) >= VALIDATORS_MAX:
        return Refused("NTC-005", f"there are {VALIDATORS_MAX} validators already", "remove one first")
    return Decided((ValidatorAdded(key, next_height),))


def remove_validator(state: HasValidators, command: RemoveValidator, _now_ms: int) -> Decided | Refused:
    key, next_height = command.key, Height(state.open_height + 1)
    if key not in state.validators:
        return Refused("NTC-005", f"{key.hex()} is no validator", "holdfast validator list", "NotFound")
    if key in state.validators_ended:
        return Decided((), repeat_of=state.last_event)
    if validator_set(state).at(next_height) == [key]:
        return Refused("NTC-005", "it is the last validator", "add another one first")
    return Decided((ValidatorRemoved(key, next_height),))


def succeed_proposer(state: HasValidators, command: SucceedProposer, _now_ms: int) -> Decided | Refused:
    """NTC-005: a new owner must already be in the set; from here on it archives what the old one has left."""
    old, new = state.chain.head.proposer, command.key
    if not old or old == new or not state.validators:
        return Decided((), repeat_of=state.last_event)
    if refusal := why_not_proposer(state, new):
        return refusal
    if new in state.proposer_successors.get(old, ()):
        return Decided((), repeat_of=state.last_event)
    return Decided((ProposerSucceeded(old, new),))


def why_not_proposer(state: HasValidators, key: bytes) -> Refused | None:
    """Why this key may not seal the open block. Before there are blobs there is no set, and any owner may.

    A rollback may lead below the first block with blobs: there is no set at that height either.
    """
    members = validator_set(state).at(state.open_height)
    if not members or key in members:
        return None
    message = f"{key.hex()} is no validator at height {state.open_height}: it proposes no block"
    return Refused("NTC-005", message, f"{ADD_HINT}: its blocks would not count for followers", "NotValidator")
