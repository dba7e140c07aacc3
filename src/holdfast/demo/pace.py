"""The demo's shortened times: a minute shows what takes hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

DEFAULT_S: Final = 40.0
"""The length for which the times below are chosen; a shorter run has shorter times."""

FINALITY_DEPTH: Final = 3
BLOB_WAIT_BLOCKS: Final = 6
UPLOADS_TRIED: Final = 3
"""After this number of failures an upload is stalled: it waits for an operator, and the node does other things."""


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
        """The node's settings by name. A provider that is gone is noticed within its lease, and soon trusted again."""
        heartbeat_ms = self.lease_ms // 5
        return {
            "policy.lease.ai_ms": self.lease_ms,
            "policy.lease.quantum_ms": self.lease_ms,
            "policy.lease.ack_timeout_ms": self.lease_ms // 2,
            "policy.chain.block_ms": self.block_ms,
            "policy.chain.finality_depth": FINALITY_DEPTH,
            "policy.retry.base_ai_ms": self.retry_ms,
            "policy.retry.base_quantum_ms": self.retry_ms,
            "policy.provider.heartbeat_ms": heartbeat_ms,
            "policy.provider.heartbeat_stale_ms": 3 * heartbeat_ms,
            "policy.provider.lease_expired_deny_ms": 2 * self.lease_ms,
            "policy.provider.cooldown_ms": 2 * self.lease_ms,
            **self._retention(),
        }

    def _retention(self) -> Mapping[str, object]:
        """Bytes may go as soon as they are final and the archive has them."""
        return {
            "policy.chain.idle_block_ms": self.block_ms,
            "policy.result.retain_hot_blocks": FINALITY_DEPTH,
            "policy.result.retain_warm_days": 0,
            "policy.result.gc_interval_ms": self.block_ms,
            "policy.archive.blob_wait_blocks": BLOB_WAIT_BLOCKS,
            "policy.archive.retry_base_ms": self.retry_ms,
            "policy.archive.retry_cap_ms": 4 * self.retry_ms,
            "policy.archive.attempts_max": UPLOADS_TRIED,
        }


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
