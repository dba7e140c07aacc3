"""Nonces to answer (PRV-001, PRV-003): made without memory, good for a minute, for one key, and once.

A nonce carries its own end and a seal of the node's, so that whoever asks for thousands takes none from others. Only
those that were answered are remembered, until they would be too old anyway. Nothing of it is in the journal.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

NONCE_MS: Final = 60_000
USED_MAX: Final = 65_536
_SEALED: Final = 16


class Nonces:
    """The challenges of one process: after a restart they are asked for again."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._used: dict[bytes, int] = {}
        """Until when each would have been good, in the order used."""

    def make(self, now_ms: int, public: bytes = b"") -> bytes:
        """32 bytes for this key alone; without a key, for any."""
        head = (now_ms + NONCE_MS).to_bytes(8, "big") + secrets.token_bytes(8)
        return head + self._seal(head, public)

    def is_good(self, nonce: bytes, now_ms: int, public: bytes = b"") -> bool:
        head, seal = nonce[:_SEALED], nonce[_SEALED:]
        if len(nonce) != 2 * _SEALED or nonce in self._used or now_ms >= int.from_bytes(head[:8], "big"):
            return False
        return any(hmac.compare_digest(seal, self._seal(head, key)) for key in (public, b""))

    def use(self, nonce: bytes, now_ms: int, public: bytes = b"") -> bool:
        """Whether it was good; it never is again. Where too many were used within a minute, none is good."""
        if not self.is_good(nonce, now_ms, public):
            return False
        while self._used and next(iter(self._used.values())) <= now_ms:
            del self._used[next(iter(self._used))]
        if len(self._used) >= USED_MAX:
            return False
        self._used[nonce] = int.from_bytes(nonce[:8], "big")
        return True

    def _seal(self, head: bytes, public: bytes) -> bytes:
        return hmac.digest(self._secret, head + public, "sha256")[:_SEALED]
