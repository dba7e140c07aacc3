"""Nonces for challenges (PRV-001, PRV-003): each is valid for one minute, for one key, and once.

A nonce carries its expiry and the node's MAC: issuing one needs no memory, so that a flood of requests displaces none.
Only used nonces are remembered, until they expire. Nothing of this is in the journal.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

NONCE_MS: Final = 60_000
USED_MAX: Final = 65_536
_HALF_BYTES: Final = 16


class Nonces:
    """The nonces of one process: after a restart, agents request new ones."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._used: dict[bytes, int] = {}
        """When each expires, in the order of use."""

    def make(self, now_ms: int, public: bytes = b"") -> bytes:
        """32 bytes, valid for this key; without a key, for any."""
        head = (now_ms + NONCE_MS).to_bytes(8, "big") + secrets.token_bytes(8)
        return head + self._mac(head, public)

    def is_good(self, nonce: bytes, now_ms: int, public: bytes = b"") -> bool:
        head, mac = nonce[:_HALF_BYTES], nonce[_HALF_BYTES:]
        if len(nonce) != 2 * _HALF_BYTES or nonce in self._used or now_ms >= int.from_bytes(head[:8], "big"):
            return False
        return any(hmac.compare_digest(mac, self._mac(head, key)) for key in (public, b""))

    def use(self, nonce: bytes, now_ms: int, public: bytes = b"") -> bool:
        """Whether the nonce was good; it never is again. Where too many were used within a minute, none is good."""
        if not self.is_good(nonce, now_ms, public):
            return False
        while self._used and next(iter(self._used.values())) <= now_ms:
            del self._used[next(iter(self._used))]
        if len(self._used) >= USED_MAX:
            return False
        self._used[nonce] = int.from_bytes(nonce[:8], "big")
        return True

    def _mac(self, head: bytes, public: bytes) -> bytes:
        return hmac.digest(self._secret, head + public, "sha256")[:_HALF_BYTES]
