"""API keys (SEC-001): who may ask for what. A key's secret is its holder's alone; the node keeps a hash of it."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core import claim
from holdfast.core.canon import H
from holdfast.core.claim import Claims
from holdfast.core.event import Decided, Event
from holdfast.core.refusal import Refused
from holdfast.core.touch import Touched
from holdfast.core.values import AccountId, Digest, EventNo, KeyId, Tier

SECRET_TAG: Final = "holdfast.key.v1"  # noqa: S105 - a domain tag
LABEL_MAX, SCOPES_MAX = 80, 32
GRACE_MS_MAX: Final = 30 * 24 * 3_600_000
EXPIRES_MS_MAX: Final = 2**62
"""What is beyond could be neither written down nor found again: rows and digests have 64 bits for a time."""
_KEY_ID: Final = re.compile(r"[0-9a-f]{16}")
_SCOPE: Final = re.compile(r"[a-zA-Z]+\.(?:\*|[a-zA-Z]+)")
_REQUESTER: Final = re.compile(r"[a-z0-9][a-z0-9:._-]{0,63}")
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9:._-]{0,127}")


class Role(StrEnum):
    """What a key's holder is to the network."""

    REQUESTER = "requester"
    PROVIDER = "provider"
    OPERATOR = "operator"
    AUDITOR = "auditor"


class Key(msgspec.Struct, array_like=True, gc=False):
    """One key; a row of the table `key`."""

    id: KeyId
    event: EventNo
    role: Role
    account: AccountId | None
    tier: Tier
    scopes: str
    """Names of methods, or `group.*`, separated by blanks; none is everything that the role allows."""
    label: str
    secret: Digest
    made_ms: int
    expires_ms: int | None
    revoked_ms: int | None = None
    old_secret: Digest | None = None
    """The secret before the last rotation, good until `old_until_ms`."""
    old_until_ms: int = 0


# ------------------------------------------------------------------------------------------------ commands, events


class MakeKey(msgspec.Struct, frozen=True, gc=False):
    """Let somebody in. Whoever asks has made the secret and sends its hash."""

    id: KeyId
    secret: Digest
    role: Role
    account: AccountId | None = None
    tier: Tier = Tier.FREE
    scopes: tuple[str, ...] = ()
    label: str = ""
    expires_ms: int | None = None


class RotateKey(msgspec.Struct, frozen=True, gc=False):
    """Give a key another secret; the one before stays good for `grace_ms`."""

    id: KeyId
    secret: Digest
    grace_ms: int = 0


class RevokeKey(msgspec.Struct, frozen=True, gc=False):
    """Let a key's holder in no longer."""

    id: KeyId


class KeyMade(Event, frozen=True, tag=32):
    """Somebody may come in."""

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
    """A key opens nothing any more."""

    id: KeyId
    revoked_ms: int


def key_claim(asked: MakeKey | KeyMade) -> bytes:
    return b"k" + asked.id.encode()


class Keyring(Protocol):
    """What this station needs of the state."""

    keys: dict[KeyId, Key]
    claims: Claims
    touched: Touched
    last_event: EventNo


# ------------------------------------------------------------------------------------------------ asking


def secret_hash(secret: bytes) -> Digest:
    """What is stored of a secret. Secrets are drawn at random, so one round of a fast hash is enough."""
    return H(SECRET_TAG, secret)


def whose(state: Keyring, id_: str, secret: bytes, now_ms: int) -> Key | Refused:
    """The key that was shown. A wrong secret learns nothing about the key, not even whether it exists."""
    key, shown = state.keys.get(KeyId(id_)), secret_hash(secret)
    if key is None or not (shown == key.secret or (shown == key.old_secret and now_ms < key.old_until_ms)):
        return Refused("SEC-001", "no such key", "make one with `holdfast key new`", "Unauthorized")
    if key.revoked_ms is not None:
        return Refused("SEC-001", f"key {id_} was revoked", "ask the operator for another", "KeyRevoked")
    if key.expires_ms is not None and now_ms >= key.expires_ms:
        return Refused("SEC-001", f"key {id_} has expired", "ask the operator for another", "KeyExpired")
    return key


# ------------------------------------------------------------------------------------------------ deciding


def make(state: Keyring, command: MakeKey, now_ms: int) -> Decided | Refused:
    scopes = " ".join(command.scopes)
    who = (command.role, command.account, command.tier)
    event = KeyMade(command.id, command.secret, *who, scopes, command.label, now_ms, command.expires_ms)
    known = state.keys.get(command.id)
    if known is not None and _made_of(known) == _made_of(event):
        return Decided((), since=known.event)
    if taken := claim.why_not_first(state.claims, key_claim(event), event):
        return taken
    return _why_not_made(command, now_ms) or Decided((event,))


def _made_of(key: Key | KeyMade) -> tuple[object, ...]:
    """What somebody asks for who asks for a key; the hour is not part of it."""
    return key.secret, key.role, key.account, key.tier, key.scopes, key.label, key.expires_ms


def _why_not_made(command: MakeKey, now_ms: int) -> Refused | None:
    role, whose, until_ms = command.role, command.account, command.expires_ms
    wrong = {
        "id: must be 16 hex digits": not _KEY_ID.fullmatch(command.id),
        "secret: must be a hash of 32 bytes": len(command.secret) != 32,
        "account: a requester's key needs one, 1–64 of a-z 0-9 : . _ -": role is Role.REQUESTER
        and not _REQUESTER.fullmatch(whose or ""),
        "account: a provider's is 1–128 of a-z 0-9 : . _ -": role is Role.PROVIDER
        and not (whose is None or _PROVIDER.fullmatch(whose)),
        "account: only a requester's or a provider's key has one": role in (Role.OPERATOR, Role.AUDITOR)
        and whose is not None,
        f"label: at most {LABEL_MAX} printable signs": len(command.label) > LABEL_MAX
        or not command.label.isprintable(),
        f"scopes: at most {SCOPES_MAX}": len(command.scopes) > SCOPES_MAX,
        "scopes: a scope is `group.method` or `group.*`": not all(_SCOPE.fullmatch(each) for each in command.scopes),
        "expires_ms: is past already": until_ms is not None and until_ms <= now_ms,
        "expires_ms: too far ahead": until_ms is not None and until_ms >= EXPIRES_MS_MAX,
    }
    found = "; ".join(says for says, is_so in wrong.items() if is_so)
    return Refused("SEC-001", found, name="InvalidParams") if found else None


def rotate(state: Keyring, command: RotateKey, now_ms: int) -> Decided | Refused:
    key = _live(state, command.id)
    if isinstance(key, Refused):
        return key
    if key.secret == command.secret:
        return Decided((), since=key.event)
    if len(command.secret) != 32:
        return Refused("SEC-001", "secret: must be a hash of 32 bytes", name="InvalidParams")
    if not 0 <= command.grace_ms <= GRACE_MS_MAX:
        return Refused("SEC-001", f"grace_ms: {command.grace_ms} is not in 0 … {GRACE_MS_MAX}", name="InvalidParams")
    return Decided((KeyRotated(command.id, command.secret, now_ms + command.grace_ms),))


def revoke(state: Keyring, command: RevokeKey, now_ms: int) -> Decided | Refused:
    key = state.keys.get(command.id)
    if key is not None and key.revoked_ms is not None:
        return Decided((), since=key.event)
    live = _live(state, command.id)
    return live if isinstance(live, Refused) else Decided((KeyRevoked(command.id, now_ms),))


def _live(state: Keyring, id_: KeyId) -> Key | Refused:
    key = state.keys.get(id_)
    if key is None:
        return Refused("SEC-001", f"no key {id_!r:.40}", "`holdfast key list` shows them", "NotFound")
    return Refused("SEC-001", f"key {id_} was revoked") if key.revoked_ms is not None else key


# ------------------------------------------------------------------------------------------------ applying


def apply_made(state: Keyring, event: KeyMade) -> None:
    number = state.last_event
    who = (event.role, event.account, event.tier, event.scopes, event.label)
    key = Key(event.id, number, *who, event.secret, event.made_ms, event.expires_ms)
    state.keys[event.id] = state.touched["key"][event.id] = key
    state.claims.add(key_claim(event), number, event)


def apply_rotated(state: Keyring, event: KeyRotated) -> None:
    key = state.keys[event.id]
    key.old_secret, key.old_until_ms, key.secret = key.secret, event.old_until_ms, event.secret
    state.touched["key"][event.id] = key


def apply_revoked(state: Keyring, event: KeyRevoked) -> None:
    key = state.keys[event.id]
    key.revoked_ms = event.revoked_ms
    state.touched["key"][event.id] = key
