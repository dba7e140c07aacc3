"""What the owner answers, and where it is in its own life."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.core.event import Event
from holdfast.core.refusal import Refused
from holdfast.core.values import EventNo


class Accepted(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Recorded, and durable by the time the caller sees it."""

    event: EventNo
    """The event that did it; for a repeat, the one that did it the first time."""
    is_repeat: bool = False
    fact: Event | None = None
    """That event itself, unless it is a repeat."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Accepted) and (self.event, self.is_repeat) == (other.event, other.is_repeat)

    def __hash__(self) -> int:
        return hash((self.event, self.is_repeat))


Outcome = Accepted | Refused


class Phase(StrEnum):
    """Where the owner is in its own life."""

    STOPPED = "stopped"
    RECOVERING = "recovering"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"
