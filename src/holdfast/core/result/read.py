"""Whether a result may be read now (RES-002, RES-007): every no has its own name."""

from __future__ import annotations

from typing import Final

from holdfast.core.job.record import Job, JobState, earliest_read_height
from holdfast.core.refusal import Refused
from holdfast.core.result.record import Result, ResultStatus
from holdfast.core.values import Height

ENDED: Final = frozenset({JobState.EXPIRED, JobState.FAILED, JobState.CANCELLED})
"""A job that is one of these has no result and never will."""


def why_not_readable(job: Job | None, result: Result | None, open_height: Height) -> Refused | None:
    """RES-002: resolved in block B, readable from B + 1; a call runs at the open height."""
    if result is None or result.status is ResultStatus.UNLINKED:
        return _why_no_result(job)
    if result.height_resolved >= open_height:
        return not_sealed(result.height_resolved)
    return why_not_yet(result.earliest or (earliest_read_height(job) if job is not None else Height(0)), open_height)


def _why_no_result(job: Job | None) -> Refused:
    if job is None:
        return Refused("RES-007", "there is no such job, and no result of it", name="NotFound")
    if job.state in ENDED:
        hint = "its money went back"
        return Refused("RES-007", f"job {job.id.hex()} ended without a result: {job.reason}", hint, "Expired")
    return Refused("RES-002", f"job {job.id.hex()} is {job.state}", "ask again later", "NoResultYet")


def not_sealed(height: Height) -> Refused:
    """RES-002: not while the block that resolves it is open."""
    return Refused(
        "RES-002", f"resolved in block {height}, which is open", f"readable from {height + 1} on", "NoResultYet"
    )


def why_not_yet(earliest: Height, open_height: Height) -> Refused | None:
    """RES-002: not before the height that the receipt promised, even where a reorg brought the head below it."""
    if open_height >= earliest:
        return None
    says = f"the receipt allows reading from height {earliest} on, this is {open_height}"
    return Refused("RES-002", says, f"readable from {earliest} on", "NoResultYet")
