"""What the validators publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
from holdfast.core.validator import apply, decide
from holdfast.core.validator.messages import (
    AddValidator,
    ProposerSucceeded,
    RemoveValidator,
    SucceedProposer,
    ValidatorAdded,
    ValidatorRemoved,
)

COMMANDS: Final[Commands] = {
    AddValidator: decide.add_validator,
    RemoveValidator: decide.remove_validator,
    SucceedProposer: decide.succeed_proposer,
}
EVENTS: Final[Events] = {
    ValidatorAdded: apply.apply_added,
    ValidatorRemoved: apply.apply_removed,
    ProposerSucceeded: apply.apply_succeeded,
}
