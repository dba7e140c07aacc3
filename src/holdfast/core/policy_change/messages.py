"""Commands and events of policy changes (PRI-003, LEA-007): the owner journals a policy when it changes."""

from __future__ import annotations

from typing import ClassVar

from holdfast.core.base.event import Command, Event
from holdfast.core.policy import Policy


class AdoptPolicy(Command, frozen=True):
    """Adopt this policy from now on."""

    policy: Policy


class PolicyAdopted(Event, frozen=True, tag=4):
    """This policy counts from now on. Waiting jobs get their priorities by it at once (PRI-003)."""

    public_name: ClassVar = "policyAdopted"

    policy: bytes
    """Packed by field names: another version reads the fields it knows and uses defaults for the rest (CAN-005)."""
