"""API keys as the state keeps them (SEC-001); of a secret only the hash is stored."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.values import AccountId, Digest, EventNo, KeyId, Tier
from holdfast.core.index.touch import Touched
from holdfast.core.index.unique_ids import Claims
from holdfast.core.policy import DAY_MS

SECRET_TAG: Final = "holdfast.key.v1"  # noqa: S105 - a domain tag


class Role(StrEnum):
    """The role of a key's holder in the network."""

    REQUESTER = "requester"
    PROVIDER = "provider"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    TREASURER = "treasurer"


class Key(msgspec.Struct, array_like=True, gc=False):
    """One key; a row of the table `key`."""

    id: KeyId
    event: EventNo
    role: Role
    account: AccountId | None
    tier: Tier
    scopes: str
    """Names of methods, or `group.*`, separated by blanks; without any, everything that the role allows."""
    label: str
    secret: Digest
    made_ms: int
    expires_ms: int | None
    revoked_ms: int | None = None
    old_secret: Digest | None = None
    """The secret before the last rotation, valid until `old_until_ms`."""
    old_until_ms: int = 0
    daily_cap: int = 0
    """How much its jobs may reserve in a day of UTC; 0: as much as the account has."""
    spent_day: int = 0
    """The day, counted from 1970, that `spent` is of."""
    spent: int = 0
    """What its jobs have reserved on that day; kept where the key has a cap."""


def spent_today(key: Key, now_ms: int) -> int:
    """SEC-002: what counts against the cap now; a new day begins at nothing."""
    return key.spent if key.spent_day == now_ms // DAY_MS else 0


class KeyState(Protocol):
    """The parts of the state that this domain reads and changes."""

    keys: dict[KeyId, Key]
    claims: Claims
    touched: Touched
    last_event: EventNo


def secret_hash(secret: bytes) -> Digest:
    """The stored hash of a secret. Secrets are drawn at random, so one round of a fast hash is enough."""
    return H(SECRET_TAG, secret)
