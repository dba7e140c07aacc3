"""The demo's shortened times: a minute shows what takes hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

DEFAULT_S: Final = 40.0
"""The length for which the times below are chosen; a shorter run has shorter times."""


class Pace(msgspec.Struct, frozen=True):
    """Times of one run in milliseconds; `seconds` is its rough length."""

    seconds: float
    lease_ms: int
    block_ms: int
    retry_ms: int
    nap_ms: int
    """How long a sleeping job sleeps on average."""

    @classmethod
    def from_seconds(cls, seconds: float) -> Pace:
        """Scaled times, but never so short that a busy machine misses a deadline without a fault."""
        scale = min(1.0, seconds / DEFAULT_S)
        return cls(
            seconds=seconds,
            lease_ms=max(2_500, int(5_000 * scale)),
            block_ms=max(250, int(1_000 * scale)),
            retry_ms=max(200, int(500 * scale)),
            nap_ms=max(600, int(1_600 * scale)),
        )

    def __str__(self) -> str:
        return (
            f"{_seconds(self.lease_ms)} leases, {_seconds(self.block_ms)} blocks, {_seconds(self.retry_ms)} retry base"
        )

    def settings(self) -> Mapping[str, object]:
        """The node's settings by name. A provider that is gone is noticed within its lease."""
        heartbeat_ms = self.lease_ms // 5
        return {
            "policy.lease.ai_ms": self.lease_ms,
            "policy.lease.quantum_ms": self.lease_ms,
            "policy.lease.ack_timeout_ms": self.lease_ms // 2,
            "policy.chain.block_ms": self.block_ms,
            "policy.chain.finality_depth": 3,
            "policy.retry.base_ai_ms": self.retry_ms,
            "policy.retry.base_quantum_ms": self.retry_ms,
            "policy.provider.heartbeat_ms": heartbeat_ms,
            "policy.provider.heartbeat_stale_ms": 3 * heartbeat_ms,
            "policy.result.serve_bytes": True,
        }


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
