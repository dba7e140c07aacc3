"""Privileged commands (SEC-001): the actor's name is recorded in the batch of the events."""

from __future__ import annotations

from typing import Any

from holdfast.core.base.event import Command, Event


class PrivilegedCommand(Command, frozen=True):
    """A command of a named actor."""

    actor: str
    """The key's id, or `local` for a caller on the node's socket."""
    method: str
    command: Any


class PrivilegedActRecorded(Event, frozen=True, tag=2):
    """The events that follow in this decision were requested by this actor."""

    actor: str
    method: str
    events: int
    """How many follow."""
