"""The receipt of an accepted job (JOB-006): one function for JSON-RPC and for host calls."""

from __future__ import annotations

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Digest, EventNo, Height, Kind, TaskId
from holdfast.core.job.model import Job
from holdfast.core.queue.messages import JobAdmitted
from holdfast.engine import queries
from holdfast.engine.outcome import Accepted


class Receipt(msgspec.Struct, frozen=True):
    """The queue holds the job now (JOB-006); everything in it can be computed again from the request."""

    task_id: TaskId
    kind: Kind
    caller: AccountId
    height: Height
    tx_hash: Digest
    nonce: int
    request_hash: Digest
    earliest_read_height: Height
    reserved: int
    enqueue_ms: int
    expires_ms: int
    expires_height: Height
    event: EventNo
    is_repeat: bool
    not_before_ms: int = 0
    """The job waits until then (JOB-013); 0: it is ready at once."""


async def receipt_of(source: queries.ReadSource, outcome: Accepted) -> Receipt | Refused:
    """The receipt of an accepted Enqueue; a repeat gets the job as it was admitted the first time (JOB-002)."""
    event = outcome.event
    if isinstance(outcome.fact, JobAdmitted):
        return _receipt(outcome.fact, event, is_repeat=False)
    first = await queries.admission(source, event) or await queries.job_by_event(source, event)
    if first is None:
        return Refused("JOB-002", f"event {event} admitted this job; its record is gone", name="NotFound")
    return _receipt(first, event, is_repeat=True)


def _receipt(job: Job | JobAdmitted, event: EventNo, *, is_repeat: bool) -> Receipt:
    return Receipt(
        task_id=job.id,
        kind=job.kind,
        caller=job.caller,
        height=job.height,
        tx_hash=job.tx_hash,
        nonce=job.nonce,
        request_hash=job.request_hash,
        earliest_read_height=Height(job.height + 1),  # RES-002
        reserved=job.max_fee,
        enqueue_ms=job.enqueue_ms,
        expires_ms=job.expires_ms,
        expires_height=job.expires_height,
        event=event,
        is_repeat=is_repeat,
        not_before_ms=job.not_before_ms if isinstance(job, JobAdmitted) else job.run_at_ms,
    )
