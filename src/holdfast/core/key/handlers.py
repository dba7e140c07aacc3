"""What API keys publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, Commands, Events
from holdfast.core.key import apply, decide, messages

COMMANDS: Final[Commands] = {
    messages.CreateKey: decide.create,
    messages.RotateKey: decide.rotate,
    messages.RevokeKey: decide.revoke,
}
EVENTS: Final[Events] = {
    messages.KeyCreated: apply.apply_created,
    messages.KeyRotated: apply.apply_rotated,
    messages.KeyRevoked: apply.apply_revoked,
    messages.KeyCapped: apply.apply_capped,
    messages.KeySpent: apply.apply_spent,
}
CLAIM_KEYS: Final[ClaimKeys] = {messages.CreateKey: lambda _, command: (messages.key_claim(command),)}
