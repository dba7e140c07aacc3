"""What the validators publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
from holdfast.core.validator import apply, decide, messages

COMMANDS: Final[Commands] = {
    messages.AddValidator: decide.add_validator,
    messages.RemoveValidator: decide.remove_validator,
    messages.SucceedProposer: decide.succeed_proposer,
}
EVENTS: Final[Events] = {
    messages.ValidatorAdded: apply.apply_added,
    messages.ValidatorRemoved: apply.apply_removed,
    messages.ProposerSucceeded: apply.apply_succeeded,
}
