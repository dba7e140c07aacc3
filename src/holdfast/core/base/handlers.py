"""What a domain publishes: how its commands are decided, how its events apply, and which claims they depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event

Decide = Callable[[Any, Any, int], Decided | Refused]
"""(state, command, now_ms): the events to record, or the refusal."""
Apply = Callable[[Any, Any], None]
"""(state, event): the only way state changes."""
ClaimKey = Callable[[Any, Any], bytes | None]
"""(state, command): the unique id that the decision depends on (ENG-005), None where it depends on none."""
Commands = Mapping[type, Decide]
Events = Mapping[type[Event], Apply]
ClaimKeys = Mapping[type, ClaimKey]


def no_effect(_state: object, _event: Event) -> None:
    """For events that only record a fact."""
