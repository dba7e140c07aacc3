"""Whether a result is readable now (RES-002, RES-007): every refusal has its own name."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Height, TaskId
from holdfast.core.job.model import Job, JobState, earliest_read_height
from holdfast.core.result.model import Consumption, HasResults, Result, ResultStatus

ENDED_WITHOUT_RESULT: Final = {
    JobState.EXPIRED: ("Expired", ResultStatus.EXPIRED),
    JobState.FAILED: ("Failed", ResultStatus.FAILED),
    JobState.CANCELLED: ("Cancelled", ResultStatus.CANCELLED),
}
"""A job in one of these states has no result and never will: the name of the refusal, and the status that is shown."""


def why_not_readable(job: Job | None, result: Result | None, open_height: Height) -> Refused | None:
    """RES-002: resolved in block B, readable from B + 1; a call runs at the open height."""
    if result is None or result.status is ResultStatus.UNLINKED or result.height_resolved > open_height:
        return _why_no_result(job)  # above the open block: a rollback has not reached it yet (RES-006)
    if result.height_resolved == open_height:
        return refuse_unsealed(result.height_resolved)
    return why_not_yet_readable(
        result.earliest or (earliest_read_height(job) if job is not None else Height(0)), open_height
    )


def _why_no_result(job: Job | None) -> Refused:
    if job is None:
        return Refused("RES-007", "there is no such job, and no result of it", name="NotFound")
    if job.state in ENDED_WITHOUT_RESULT:
        return refuse_ended(job.id, job.state, job.reason)
    return Refused("RES-002", f"job {job.id.hex()} is {job.state}", "try again later", "NoResultYet")


def refuse_ended(id_: TaskId, state: JobState, reason: str = "") -> Refused:
    """RES-007: there is no result and never will be; the reason for those who may know it (JOB-010)."""
    name, status = ENDED_WITHOUT_RESULT[state]
    why = f", {reason}" if reason else ""
    return Refused("RES-007", f"job {id_.hex()} ended without a result: {status}{why}", "its money was refunded", name)


def refuse_unsealed(height: Height) -> Refused:
    """RES-002: a result is not readable while the block that resolves it is open."""
    return Refused(
        "RES-002", f"resolved in block {height}, which is open", f"readable from {height + 1} on", "NoResultYet"
    )


def why_not_yet_readable(earliest: Height, open_height: Height) -> Refused | None:
    """RES-002: a result is not readable below the height of its receipt, even after a reorg to a lower head."""
    if open_height >= earliest:
        return None
    message = f"the receipt allows reading from height {earliest} on, this is {open_height}"
    return Refused("RES-002", message, f"readable from {earliest} on", "NoResultYet")


NOT_IN_BLOCK = Height(0)
"""The height of a consumption whose block was rolled back."""


def is_valid_above(state: HasResults, consumption: Consumption, head: Height) -> bool:
    """Whether a consumption would be valid in the block above this head."""
    result = state.results.get(consumption.task_id)
    return consumption.earliest <= head + 1 and (result is None or 0 < result.height_resolved <= head)
