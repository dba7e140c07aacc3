"""What policy changes publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
from holdfast.core.policy_change import apply, decide
from holdfast.core.policy_change.messages import AdoptPolicy, PolicyAdopted

COMMANDS: Final[Commands] = {AdoptPolicy: decide.adopt}
EVENTS: Final[Events] = {PolicyAdopted: apply.apply_adopted}
