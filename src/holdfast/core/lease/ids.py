"""The id of a lease."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from holdfast.core.base.canonical import framed, hash_from, hash_prefix
from holdfast.core.base.values import LeaseId, ProviderId, Seed, TaskId

LEASE_TAG: Final = "AICF|lease"


def lease_id(job_id: TaskId, provider_id: ProviderId, attempt: int, seed: Seed) -> LeaseId:
    """LEA-001: `attempt` counts the leases of the job from 0, so an id never repeats."""
    return hash_from(_PREFIX + framed(job_id) + _end(provider_id, attempt, seed))  # type: ignore[return-value]


@lru_cache(maxsize=4_096)  # the same for all jobs of a tick that a provider gets
def _end(provider_id: ProviderId, attempt: int, seed: Seed) -> bytes:
    return framed(provider_id, attempt, seed)


_PREFIX: Final = hash_prefix(LEASE_TAG)
