"""Commands and events of API keys."""

from __future__ import annotations

from typing import ClassVar

from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import AccountId, Digest, KeyId, Tier
from holdfast.core.key.model import Role


class CreateKey(Command, frozen=True):
    """Create a key. The caller has drawn the secret and sends its hash."""

    id: KeyId
    secret: Digest
    role: Role
    account: AccountId | None = None
    tier: Tier = Tier.FREE
    scopes: tuple[str, ...] = ()
    label: str = ""
    expires_ms: int | None = None


class RotateKey(Command, frozen=True):
    """Give a key another secret; the previous one stays valid for `grace_ms`."""

    id: KeyId
    secret: Digest
    grace_ms: int = 0


class RevokeKey(Command, frozen=True):
    """Make a key invalid."""

    id: KeyId


class KeyCreated(Event, frozen=True, tag=32):
    """A key exists and is valid."""

    public_name: ClassVar = "keyCreated"

    id: KeyId
    secret: Digest
    role: Role
    account: AccountId | None
    tier: Tier
    scopes: str
    label: str
    made_ms: int
    expires_ms: int | None


class KeyRotated(Event, frozen=True, tag=33):
    """A key has another secret."""

    public_name: ClassVar = "keyRotated"

    id: KeyId
    secret: Digest
    old_until_ms: int


class KeyRevoked(Event, frozen=True, tag=34):
    """A key is not valid any more."""

    public_name: ClassVar = "keyRevoked"

    id: KeyId
    revoked_ms: int


def key_claim(request: CreateKey | KeyCreated) -> bytes:
    return b"k" + request.id.encode()
