"""What a domain publishes: how its commands are decided, how its events apply, and which claims they depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Answer, Decided, Event
from holdfast.core.base.values import EventNo

Decide = Callable[[Any, Any, int], Decided | Refused]
"""(state, command, now_ms): the events to record, or the refusal."""
DecideRun = Callable[[Any, Sequence[Any], int], list[Answer]]
"""(state, commands, now_ms): the same for a run of commands of one type, in order.

It answers the first of them, at least one. Sums that an earlier command of the run changes are carried in locals. Where
a command depends on an earlier one in any other way, the run ends before it; it also ends with a `NeedsClaims`.
"""
Apply = Callable[[Any, Any], None]
"""(state, event): the only way state changes; `state.last_event` is the number of this event."""
ApplyRun = Callable[[Any, Sequence[Any], Sequence[EventNo]], None]
"""(state, events, numbers): the same for events of one type; between them are only events without effect."""
ClaimKey = Callable[[Any, Any], tuple[bytes, ...]]
"""(state, command): the unique ids that the decision depends on (ENG-005)."""
Commands = Mapping[type, Decide]
CommandRuns = Mapping[type, DecideRun]
Events = Mapping[type[Event], Apply]
EventRuns = Mapping[type[Event], ApplyRun]
ClaimKeys = Mapping[type, ClaimKey]


def no_effect(_state: object, _event: Event) -> None:
    """For events that only record a fact."""
