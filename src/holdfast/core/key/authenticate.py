"""The one check of a key's secret (SEC-001)."""

from __future__ import annotations

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import KeyId
from holdfast.core.key.model import Key, KeyState, secret_hash


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
