"""What API keys publish to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, Commands, Events
from holdfast.core.key import apply, decide
from holdfast.core.key.messages import (
    CreateKey,
    KeyCapped,
    KeyCreated,
    KeyRevoked,
    KeyRotated,
    KeySpent,
    RevokeKey,
    RotateKey,
    key_claim,
)

COMMANDS: Final[Commands] = {CreateKey: decide.create, RotateKey: decide.rotate, RevokeKey: decide.revoke}
EVENTS: Final[Events] = {
    KeyCreated: apply.apply_created,
    KeyRotated: apply.apply_rotated,
    KeyRevoked: apply.apply_revoked,
    KeyCapped: apply.apply_capped,
    KeySpent: apply.apply_spent,
}
CLAIM_KEYS: Final[ClaimKeys] = {CreateKey: lambda _, command: (key_claim(command),)}
