"""Whether a key may be created, rotated or revoked, and the one check of its secret (SEC-001)."""

from __future__ import annotations

import re
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.records import record_from
from holdfast.core.base.values import ACCOUNT_NAME, KeyId
from holdfast.core.index import unique_ids
from holdfast.core.key.messages import (
    CreateKey,
    KeyCapped,
    KeyCreated,
    KeyRevoked,
    KeyRotated,
    RevokeKey,
    RotateKey,
    key_claim,
)
from holdfast.core.key.model import Key, KeyState, Role, secret_hash
from holdfast.core.policy import DAY_MS

REQUESTER_NAME_MAX: Final = 64
LABEL_MAX, SCOPES_MAX = 80, 32
GRACE_MS_MAX: Final = 30 * DAY_MS
CAP_MAX: Final = 2**62
EXPIRES_MS_MAX: Final = 2**62
"""Rows and digests have 64 bits for a time: a later one could not be stored."""
_KEY_ID: Final = re.compile(r"[0-9a-f]{16}")
_SCOPE: Final = re.compile(r"[a-zA-Z]+\.(?:\*|[a-zA-Z]+)")


def create(state: KeyState, command: CreateKey, now_ms: int) -> Decided | Refused:
    event = record_from(KeyCreated, command, scopes=" ".join(command.scopes), made_ms=now_ms)
    known = state.keys.get(command.id)
    if known is not None and _request_fields(known) == _request_fields(event):
        if known.daily_cap != command.daily_cap:
            hint = "a repeat must be the same in every field; take a new id for a new key"
            return Refused("SEC-001", f"key {command.id} has another daily cap", hint, "IdReused")
        return Decided((), repeat_of=known.event)
    if earlier := unique_ids.check_unique(state.claims, key_claim(event), event):
        return earlier
    capped = (KeyCapped(command.id, command.daily_cap),) if command.daily_cap else ()
    return _why_not_created(command, now_ms) or Decided((event, *capped))


def _request_fields(key: Key | KeyCreated) -> tuple[object, ...]:
    """The fields that make two requests for a key the same; the time is not one of them."""
    return key.secret, key.role, key.account, key.tier, key.scopes, key.label, key.expires_ms


def _why_not_created(command: CreateKey, now_ms: int) -> Refused | None:
    role, account, until_ms = command.role, command.account, command.expires_ms
    faults = {
        "id: must be 16 hex digits": not _KEY_ID.fullmatch(command.id),
        "secret: must be a hash of 32 bytes": len(command.secret) != 32,
        "account: a requester's key needs one, 1–64 of a-z 0-9 : . _ -": role is Role.REQUESTER
        and not (ACCOUNT_NAME.fullmatch(account or "") and len(account or "") <= REQUESTER_NAME_MAX),
        "account: a provider's is 1–128 of a-z 0-9 : . _ -": role is Role.PROVIDER
        and not (account is None or ACCOUNT_NAME.fullmatch(account)),
        "account: only a requester's or a provider's key has one": role not in (Role.REQUESTER, Role.PROVIDER)
        and account is not None,
        f"label: at most {LABEL_MAX} printable characters": len(command.label) > LABEL_MAX
        or not command.label.isprintable(),
        f"scopes: at most {SCOPES_MAX}": len(command.scopes) > SCOPES_MAX,
        "scopes: a scope is `group.method` or `group.*`": not all(_SCOPE.fullmatch(scope) for scope in command.scopes),
        f"daily_cap: 0 … {CAP_MAX}, of a requester's key": not 0 <= command.daily_cap <= CAP_MAX
        or (command.daily_cap and role is not Role.REQUESTER),
        "expires_ms: is past already": until_ms is not None and until_ms <= now_ms,
        "expires_ms: too far ahead": until_ms is not None and until_ms >= EXPIRES_MS_MAX,
    }
    message = "; ".join(fault for fault, is_present in faults.items() if is_present)
    return Refused("SEC-001", message, name="InvalidParams") if message else None


def rotate(state: KeyState, command: RotateKey, now_ms: int) -> Decided | Refused:
    key = _key_of(state, command.id)
    if isinstance(key, Refused):
        return key
    if key.revoked_ms is not None:
        return Refused("SEC-001", f"key {command.id} is revoked for ever", "create another")
    if key.secret == command.secret:
        return Decided((), repeat_of=key.event)
    if len(command.secret) != 32:
        return Refused("SEC-001", "secret: must be a hash of 32 bytes", name="InvalidParams")
    if not 0 <= command.grace_ms <= GRACE_MS_MAX:
        return Refused("SEC-001", f"grace_ms: {command.grace_ms} is not in 0 … {GRACE_MS_MAX}", name="InvalidParams")
    return Decided((KeyRotated(command.id, command.secret, now_ms + command.grace_ms),))


def revoke(state: KeyState, command: RevokeKey, now_ms: int) -> Decided | Refused:
    key = _key_of(state, command.id)
    if isinstance(key, Refused):
        return key
    if key.revoked_ms is not None:
        return Decided((), repeat_of=key.event)
    return Decided((KeyRevoked(command.id, now_ms),))


def _key_of(state: KeyState, id_: KeyId) -> Key | Refused:
    key = state.keys.get(id_)
    return key or Refused("SEC-001", f"no key {id_!r:.40}", "`holdfast key list` shows them", "NotFound")


def authenticate(state: KeyState, id_: str, secret: bytes, now_ms: int) -> Key | Refused:
    """The key with this id and secret. A wrong secret reveals nothing about the key, not even whether it exists."""
    key, hashed = state.keys.get(KeyId(id_)), secret_hash(secret)
    if key is None or not (hashed == key.secret or (hashed == key.old_secret and now_ms < key.old_until_ms)):
        return Refused("SEC-001", "no such key", "create one with `holdfast key create`", "Unauthorized")
    if key.revoked_ms is not None:
        return Refused("SEC-001", f"key {id_} was revoked", "ask the operator for another", "KeyRevoked")
    if key.expires_ms is not None and now_ms >= key.expires_ms:
        return Refused("SEC-001", f"key {id_} has expired", "ask the operator for another", "KeyExpired")
    return key
