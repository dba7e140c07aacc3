"""An agent's keys in its folder: the current one, the next one during a rotation, and the provider's id (PRV-003).

The id of a provider is that of its first key for ever. It is stored before the key is rotated, so that the new key
still runs as the same provider. A crash at any point leaves files from which the rotation is resumed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.adapters.keys.secret_file import exists, read_secret, write_new
from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import ProviderId
from holdfast.core.provider.model import provider_id
from holdfast.system.durable_files import rename_file

KEY: Final = "keys/agent.pem"
"""The key an agent signs with."""
NEXT: Final = "keys/agent.next.pem"
PROVIDER: Final = "keys/provider.id"
"""The provider's id as 64 hex digits; absent as long as the first key is in use."""


class AgentKeys:
    """The keys in one agent's folder."""

    def __init__(self, data: Path) -> None:
        self._key, self._next, self._provider = data / KEY, data / NEXT, data / PROVIDER

    @property
    def exist(self) -> bool:
        """Whether an agent was started here."""
        return exists(self._key)

    def current(self) -> SigningKey:
        """The current key; it is created at the first start."""
        return SigningKey.load_or_create(self._key)

    def provider(self, current: SigningKey) -> ProviderId:
        """The id of the provider that these keys belong to."""
        if not exists(self._provider):
            return provider_id(current.public)
        text = read_secret(self._provider).strip()
        try:
            id_ = bytes.fromhex(text.decode("ascii"))
        except ValueError:
            id_ = b""
        if len(id_) != 32:
            raise Unavailable("SEC-001", f"{self._provider} does not hold a provider id", "restore it: 64 hex digits")
        return ProviderId(id_)

    @property
    def is_rotating(self) -> bool:
        return exists(self._next)

    def prepare_next(self, current: SigningKey) -> SigningKey:
        """The next key, new or of an interrupted rotation. It is durable, and so is the provider's id."""
        write_new(self._provider, f"{self.provider(current).hex()}\n".encode())
        return SigningKey.load_or_create(self._next)

    def activate_next(self) -> None:
        """Make the next key the current one, once the node knows it. The old key is not used any more."""
        try:
            rename_file(self._next, self._key)
        except OSError as fault:
            raise Unavailable("SEC-001", f"{self._key}: {fault.strerror}", "run it again") from fault
