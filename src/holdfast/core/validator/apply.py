"""What an event does to the set of validators.

The heights are those of the events: a reorg only ever moves a transaction down, so it stays below what it says.
"""

from __future__ import annotations

from holdfast.core.validator.messages import ProposerSucceeded, ValidatorAdded, ValidatorRemoved
from holdfast.core.validator.model import HasValidators


def apply_added(state: HasValidators, event: ValidatorAdded) -> None:
    state.validators[event.key] = event.since


def apply_removed(state: HasValidators, event: ValidatorRemoved) -> None:
    state.validators_ended[event.key] = event.since


def apply_succeeded(state: HasValidators, event: ProposerSucceeded) -> None:
    succeed(state.proposer_successors, event.old, event.new)


def succeed(successors: dict[bytes, list[bytes]], old: bytes, new: bytes) -> None:
    """Nothing is forgotten: a follower that joins later checks what each of them has archived."""
    if new not in successors.setdefault(old, []):
        successors[old] = [*successors[old], new]
