"""Commands and events of the set of validators. Each event is a transaction: followers learn of it (CHN-001)."""

from __future__ import annotations

from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import Height

ADDED, REMOVED, SUCCEEDED = "added", "removed", "succeeded"


class AddValidator(Command, frozen=True):
    """From the next block on this key may propose, and its notices count."""

    key: bytes


class RemoveValidator(Command, frozen=True):
    """From the next block on this key does not count any more; for the heights before, it does."""

    key: bytes


class SucceedProposer(Command, frozen=True):
    """A new owner takes over from the proposer of the head (NTC-005)."""

    key: bytes


class ValidatorAdded(Event, frozen=True, tag=160):
    """A key counts from this height on."""

    key: bytes
    since: Height


class ValidatorRemoved(Event, frozen=True, tag=161):
    """A key does not count from this height on."""

    key: bytes
    since: Height


class ProposerSucceeded(Event, frozen=True, tag=162):
    """From here on the signature of `new` counts for what `old` has proposed and not archived."""

    old: bytes
    new: bytes


ValidatorEvent = ValidatorAdded | ValidatorRemoved | ProposerSucceeded


def change_content(event: ValidatorEvent) -> bytes:
    """What the leaf of the transaction says; its subject is the key that is changed."""
    match event:
        case ValidatorAdded():
            return canonical([ADDED, event.since])
        case ValidatorRemoved():
            return canonical([REMOVED, event.since])
        case ProposerSucceeded():
            return canonical([SUCCEEDED, event.old])


def change_subject(event: ValidatorEvent) -> bytes:
    return event.new if isinstance(event, ProposerSucceeded) else event.key
