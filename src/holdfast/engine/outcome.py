"""What the owner answers to a command, and the status of the owner itself."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.base.errors import Fenced, Refused, Unavailable
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


RETRY_HINT: Final = "submit again with the same id: it is done at most once"


def why_not_running(status: EngineStatus, fault: Exception | None) -> Unavailable:
    """What a caller is told by an owner that does not decide now."""
    if isinstance(fault, Fenced):
        return Fenced("ENG-001", fault.message, fault.hint)
    if fault is not None:
        return Unavailable("ENG-002", f"the node failed: {fault}", "see its log; nothing confirmed is lost")
    return Unavailable("ENG-002", f"the node is {status}", RETRY_HINT)
