"""How fast the demo plays: times so short that a minute shows what takes hours, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

WHOLE_S: Final = 40.0
"""The length for which the times below are made; a shorter run has shorter times."""


class Pace(msgspec.Struct, frozen=True):
    """Times of one run in milliseconds; `seconds` is its rough length."""

    seconds: float
    lease_ms: int
    block_ms: int
    retry_ms: int
    nap_ms: int
    """How long a sleeping job sleeps, on the average."""

    @classmethod
    def of(cls, seconds: float) -> Pace:
        """Never so short that a busy machine misses a deadline without anything being broken."""
        scale = min(1.0, seconds / WHOLE_S)
        shortest = (2_500, 250, 200, 600)
        told = (int(whole * scale) for whole in (5_000, 1_000, 500, 1_600))
        return cls(seconds, *map(max, shortest, told))

    def __str__(self) -> str:
        return f"{_s(self.lease_ms)} leases, {_s(self.block_ms)} blocks, {_s(self.retry_ms)} retry base"

    def settings(self) -> Mapping[str, object]:
        """What the node is told, by the names of its settings. A provider that is gone is noticed within its lease."""
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


def _s(ms: int) -> str:
    return f"{ms / 1000:g} s"
