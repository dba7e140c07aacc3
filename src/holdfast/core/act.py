"""Privileged acts (SEC-001): whoever does what others may not leaves a name, in the batch of what was done."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.event import Event


class Act(msgspec.Struct, frozen=True, gc=False):
    """A command, asked for by name."""

    actor: str
    """The key's id, or `local` for whoever may open the node's socket."""
    method: str
    command: Any


class ActDone(Event, frozen=True, tag=2):
    """The events that follow in this decision were asked for by this actor."""

    actor: str
    method: str
    events: int
    """How many follow."""
