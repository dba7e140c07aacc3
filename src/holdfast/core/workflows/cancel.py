"""Cancelling a job (JOB-008): its leases end first, without penalty; then the job ends and its fee is refunded."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.fsm import why_not_transition
from holdfast.core.base.handlers import Commands
from holdfast.core.job.model import JOB_TRANSITIONS, JobTransition
from holdfast.core.lease import quorum
from holdfast.core.lease.model import HasLeases
from holdfast.core.queue.decide import job_of
from holdfast.core.queue.messages import CancelJob, JobCancelled


def cancel_job(state: HasLeases, command: CancelJob, now_ms: int) -> Decided | Refused:
    """JOB-008: a requester cancels its own jobs, an operator any job; a submitted result gets its verdict first."""
    job = job_of(state, command.id, command.by)
    if isinstance(job, Refused):
        return job
    leases = quorum.live_leases(state, job)
    if any(lease.submitted is not None for lease in leases):
        return Refused("RCV-001", f"job {job.id.hex()} waits for the verdict on its result", "try again in a moment")
    if not leases and (why := why_not_transition(JOB_TRANSITIONS, job.state, JobTransition.CANCEL)):
        return Refused("JOB-007", f"job {job.id.hex()}: {why}", "what has ended cannot be cancelled")
    closed = quorum.close_leases(state, job, "JOB_CANCELLED", now_ms) if leases else ()
    return Decided((*closed, JobCancelled(job.id, command.reason, now_ms)), answer_index=len(closed))


COMMANDS: Final[Commands] = {CancelJob: cancel_job}
