"""Retries: how long a job waits after a failure, the same on every machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.canonical import H
from holdfast.core.base.values import Kind
from holdfast.core.policy import RetryPolicy

RETRY_TAG: Final = "AICF|retry"


def delay_ms(kind: Kind, job_id: bytes, failure: int, policy: RetryPolicy) -> int:
    """RTY-002: from the kind's base up to the cap, each time `backoff_factor` times as long; then up to a tenth more or
    less, by a hash of the job."""
    base_ms = policy.base_quantum_ms if kind is Kind.QUANTUM else policy.base_ai_ms
    # The power is bounded: even doubling more often than the cap has bits changes nothing.
    times: int = policy.backoff_factor ** min(failure, policy.cap_ms.bit_length())
    d = min(policy.cap_ms, base_ms * times)
    u = int.from_bytes(H(RETRY_TAG, job_id, failure)[:8], "big")
    return d + d * ((2 * u + 1) - 2**64) // (10 * 2**64)
