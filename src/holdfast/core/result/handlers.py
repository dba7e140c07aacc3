"""What results publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, Commands, Events
from holdfast.core.result import apply, decide
from holdfast.core.result.messages import Consume, ConsumptionDropped, ResultConsumed, consumption_key

COMMANDS: Final[Commands] = {Consume: decide.consume}
EVENTS: Final[Events] = {ResultConsumed: apply.apply_consumed, ConsumptionDropped: apply.apply_dropped}
CLAIM_KEYS: Final[ClaimKeys] = {Consume: lambda _, command: (consumption_key(command.task_id),)}
