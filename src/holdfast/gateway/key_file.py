"""The gateway's keys, in a file of their own that holds only hashes (SEC-001).

`holdfast gateway key` changes the file; a running gateway notices. A token is `load_acc_ID_SECRET`.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from holdfast.adapters.keys.secret_file import read_secret
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.key.model import secret_hash
from holdfast.system.durable_files import FOLDER_MODE, lock_file, replace_file

TOKEN_PREFIX: Final = "load_acc_"  # noqa: S105 - what tokens of load-s3-agent begin with
SECRET_BYTES: Final = 32
LABEL_MAX: Final = 80
LOOK_MS: Final = 100
"""A key that another process has revoked is refused after this time."""
T = TypeVar("T")


class GatewayKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key; of its secret only the hash is stored."""

    id: str
    secret: str
    created_ms: int
    label: str = ""
    is_admin: bool = False
    """May read the registry of every bucket, and the metrics where they are not public."""
    quota_bytes: int | None = None
    quota_items: int | None = None
    revoked_ms: int | None = None


class _Content(msgspec.Struct, frozen=True):
    version: int = 1
    keys: tuple[GatewayKey, ...] = ()


class KeyFile:
    """The keys of one gateway."""

    def __init__(self, path: Path, monotonic_ms: Callable[[], int] | None = None) -> None:
        """With a clock, the file is looked at a few times a second, not for every request."""
        self._path, self._monotonic_ms = path, monotonic_ms
        self._looked_ms = -LOOK_MS
        self._stamp: tuple[int, int, int] | None = None
        self._keys: dict[str, GatewayKey] = {}

    def keys(self) -> list[GatewayKey]:
        """All keys, the oldest first; read again where the file has changed."""
        self._refresh()
        return list(self._keys.values())

    def is_empty(self) -> bool:
        """Whether there is no key at all."""
        self._refresh_if_due()
        return not self._keys

    def authenticate(self, token: str) -> GatewayKey | None:
        """The key of this token, revoked or not; None where the token is none of ours."""
        self._refresh_if_due()
        id_, _, secret = token.removeprefix(TOKEN_PREFIX).partition("_")
        key = self._keys.get(id_) if token.startswith(TOKEN_PREFIX) else None
        expected = key.secret if key is not None else "0" * 64
        is_right = hmac.compare_digest(secret_hash(secret.encode("utf-8", "replace")).hex(), expected)
        return key if is_right else None

    def create(
        self, now_ms: int, label: str, *, is_admin: bool, quota_bytes: int | None, quota_items: int | None
    ) -> tuple[GatewayKey, str]:
        """A new key and its token, which is stored nowhere."""
        id_, secret = secrets.token_hex(8), secrets.token_urlsafe(SECRET_BYTES)
        key = GatewayKey(
            id=id_,
            secret=secret_hash(secret.encode()).hex(),
            created_ms=now_ms,
            label=label[:LABEL_MAX],
            is_admin=is_admin,
            quota_bytes=quota_bytes,
            quota_items=quota_items,
        )
        self._change(lambda keys: ({**keys, id_: key}, None))
        return key, f"{TOKEN_PREFIX}{id_}_{secret}"

    def revoke(self, id_: str, now_ms: int) -> GatewayKey | Refused:
        """Its uploads are refused from now on; revoking it again changes nothing."""

        def change(keys: dict[str, GatewayKey]) -> tuple[dict[str, GatewayKey], GatewayKey | Refused]:
            if (key := keys.get(id_)) is None:
                return keys, Refused("SEC-001", f"no key {id_!r:.40}", "holdfast gateway key list", "NotFound")
            revoked = key if key.revoked_ms is not None else msgspec.structs.replace(key, revoked_ms=now_ms)
            return {**keys, id_: revoked}, revoked

        return self._change(change)

    def _change(self, change: Callable[[dict[str, GatewayKey]], tuple[dict[str, GatewayKey], T]]) -> T:
        """One process at a time: two administrators lose no key."""
        self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        file = lock_file(self._path.with_suffix(".lock"))
        if file is None:
            raise Unavailable("SEC-001", f"another process is changing {self._path}", "try again")
        try:
            self._refresh()
            self._keys, outcome = change(self._keys)
            replace_file(self._path, msgspec.json.encode(_Content(keys=tuple(self._keys.values()))))
        finally:
            os.close(file)
        return outcome

    def _refresh_if_due(self) -> None:
        if self._monotonic_ms is None:
            self._refresh()
        elif (now_ms := self._monotonic_ms()) >= self._looked_ms + LOOK_MS:
            self._looked_ms = now_ms
            self._refresh()

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._stamp, self._keys = None, {}
            return
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return
        try:
            content = msgspec.json.decode(read_secret(self._path), type=_Content)
        except msgspec.DecodeError:
            raise Unavailable("SEC-001", f"{self._path} is damaged", "restore it from a backup") from None
        self._stamp, self._keys = stamp, {key.id: key for key in content.keys}
