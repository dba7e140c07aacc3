"""An agent's keys in its folder: the one it signs with, the one it is changing to, and whose keys they are (PRV-003).

A provider is known by the id of its first key for ever. So that a changed key still runs as the same provider, the id
is written down before the key is changed; a crash at any point leaves files from which the change is taken up again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast.adapters.keys.secretfile import exists, read_secret, write_new
from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.provider.record import provider_id
from holdfast.core.refusal import Unavailable
from holdfast.core.values import ProviderId

KEY: Final = "keys/agent.pem"
"""Signs what an agent says."""
NEXT: Final = "keys/agent.next.pem"
PROVIDER: Final = "keys/provider.id"
"""The provider's id as 64 hex digits; not there as long as the first key is in use."""


class AgentKeys:
    """Those of one agent's folder."""

    def __init__(self, data: Path) -> None:
        self._key, self._next, self._provider = data / KEY, data / NEXT, data / PROVIDER

    def current(self) -> SigningKey:
        """Made at the first start."""
        return SigningKey.load_or_create(self._key)

    def provider(self, current: SigningKey) -> ProviderId:
        """Who these keys are."""
        if not exists(self._provider):
            return provider_id(current.public)
        text = read_secret(self._provider).strip()
        try:
            id_ = bytes.fromhex(text.decode("ascii"))
        except ValueError:
            id_ = b""
        if len(id_) != 32:
            raise Unavailable("SEC-001", f"{self._provider} holds no provider's id", "restore it: 64 hex digits")
        return ProviderId(id_)

    @property
    def is_changing(self) -> bool:
        return exists(self._next)

    def next(self, current: SigningKey) -> SigningKey:
        """The key to change to: a new one, or that of a change which was begun. Durable, as is whose it is."""
        write_new(self._provider, f"{self.provider(current).hex()}\n".encode())
        return SigningKey.load_or_create(self._next)

    def turn(self) -> None:
        """The node knows the next key: from now on it is the current one. The old one signs nothing any more."""
        try:
            self._next.replace(self._key)
            folder = os.open(self._key.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as fault:
            raise Unavailable("SEC-001", f"{self._key}: {fault.strerror}", "run it again") from fault
