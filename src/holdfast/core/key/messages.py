"""Commands and events of API keys."""

from __future__ import annotations

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
    daily_cap: int = 0
    """How much its jobs may reserve in a day of UTC; 0: as much as the account has."""


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

    id: KeyId
    secret: Digest
    old_until_ms: int


class KeyRevoked(Event, frozen=True, tag=34):
    """A key is not valid any more."""

    id: KeyId
    revoked_ms: int


class KeyCapped(Event, frozen=True, tag=36):
    """A key that was created with a daily cap has it (SEC-002)."""

    id: KeyId
    daily_cap: int


class KeySpent(Event, frozen=True, tag=35):
    """A job of a key with a cap has reserved its fee: all that the key has reserved on that day (SEC-002)."""

    id: KeyId
    day: int
    spent: int


def key_claim(request: CreateKey | KeyCreated) -> bytes:
    return b"k" + request.id.encode()
