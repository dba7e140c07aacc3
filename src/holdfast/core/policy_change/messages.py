"""Commands and events of policy changes (PRI-003, LEA-007): the journal records every policy that is adopted."""

from __future__ import annotations

from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import EventNo
from holdfast.core.policy import Policy


class AdoptPolicy(Command, frozen=True):
    """Adopt this policy from now on."""

    policy: Policy
    by: str = ""
    """Who asked for it."""


class PolicyAdopted(Event, frozen=True, tag=4):
    """This policy counts from now on. Waiting jobs get their priorities by it at once (PRI-003)."""

    policy: bytes
    """Packed by field names: another version reads the fields it knows and uses defaults for the rest (CAN-005)."""
    before: EventNo = EventNo(0)
    """The adoption before this one; 0 where there was none."""
    at_ms: int = 0
    by: str = ""
