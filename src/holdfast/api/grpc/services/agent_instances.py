"""One agent per key: which folder the agent of each provider works in, and who is refused meanwhile (RCV-002)."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import ProviderId
from holdfast.core.provider.model import Provider
from holdfast.engine.loop import Engine

INSTANCE_BYTES_MAX: Final = 64


class AgentInstances:
    """Of the agents that have opened a work stream at this server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._opened: dict[ProviderId, tuple[bytes, int]] = {}
        """The instance, and when it opened its stream: its first heartbeat follows."""

    def why_not(self, provider: Provider | None, instance: bytes) -> Refused | None:
        """Two agents of one key would sign different outputs for one lease; the first one keeps its place."""
        if len(instance) > INSTANCE_BYTES_MAX:
            return Refused("PRV-003", f"instance: at most {INSTANCE_BYTES_MAX} bytes", name="TooLarge")
        if provider is None or provider.id not in self._opened:
            return None
        known, opened_ms = self._opened[provider.id]
        seen_ms, stale_ms = max(provider.heartbeat_ms, opened_ms), self._engine.policy.provider.heartbeat_stale_ms
        left_ms = seen_ms + stale_ms - self._engine.now_ms()
        if not instance or not known or known == instance or left_ms <= 0:
            return None
        message = "an agent of this key works from another folder"
        return Refused("RCV-002", message, f"run one agent per key, or stop it and wait {left_ms // 1_000 + 1} s")

    def note(self, id_: ProviderId, instance: bytes) -> None:
        """It has opened a work stream."""
        self._opened[id_] = instance, self._engine.now_ms()
