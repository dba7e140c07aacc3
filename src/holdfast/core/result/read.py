"""Whether a result may be read now (RES-002, RES-007): every no has its own name."""

from __future__ import annotations

from holdfast.core.job.record import Job, JobState
from holdfast.core.refusal import Refused
from holdfast.core.result.record import Result, ResultStatus
from holdfast.core.values import Height


def why_not_readable(job: Job, result: Result | None, open_height: Height) -> Refused | None:
    """RES-002: resolved in block B, readable from B + 1; a call runs at the open height."""
    if job.state in (JobState.EXPIRED, JobState.FAILED, JobState.CANCELLED):
        return Refused("RES-007", f"job {job.id.hex()} ended without a result: {job.reason}", name="Expired")
    if result is None or result.status is ResultStatus.UNLINKED:
        return Refused("RES-002", f"job {job.id.hex()} is {job.state}", "ask again later", "NoResultYet")
    if result.height_resolved >= open_height:
        says = f"resolved in block {result.height_resolved}, which is open"
        return Refused("RES-002", says, f"readable from {result.height_resolved + 1} on", "NoResultYet")
    return None
