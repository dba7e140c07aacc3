"""What the owner answers to a command, and the status of the owner itself."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event
from holdfast.core.base.values import EventNo


class Accepted(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The command is recorded; the record is durable by the time the caller sees this."""

    event: EventNo
    """The event that recorded it; for a repeat, that of the first time."""
    is_repeat: bool = False
    fact: Event | None = None
    """That event itself, unless it is a repeat."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Accepted) and (self.event, self.is_repeat) == (other.event, other.is_repeat)

    def __hash__(self) -> int:
        return hash((self.event, self.is_repeat))


Outcome = Accepted | Refused


class EngineStatus(StrEnum):
    """What the owner is doing."""

    STOPPED = "stopped"
    RECOVERING = "recovering"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"
