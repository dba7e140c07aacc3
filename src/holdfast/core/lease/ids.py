"""The id of a lease."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.canonical import H
from holdfast.core.base.values import LeaseId, ProviderId, Seed, TaskId

LEASE_TAG: Final = "AICF|lease"


def lease_id(job_id: TaskId, provider_id: ProviderId, attempt: int, seed: Seed) -> LeaseId:
    """LEA-001: `attempt` counts the leases of the job from 0, so an id never repeats."""
    return LeaseId(H(LEASE_TAG, job_id, provider_id, attempt, seed))
