"""Whether a job was lost or done twice: compares the requester's receipts with what the store says."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.demo.event_history import EventHistory
from holdfast.demo.receipts import RequestRecord, RequestStatus


class ReceiptReport(msgspec.Struct, frozen=True):
    """`lost`: receipts that the store does not honour. `duplicated`: jobs admitted or finished more than once."""

    receipts: int
    lost: list[RequestRecord]
    duplicated: list[str]

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.duplicated


def check_receipts(records: Iterable[RequestRecord], history: EventHistory, *, is_over: bool = False) -> ReceiptReport:
    """A receipt is honoured if its event admitted this job, and the job has not ended without a result.

    When the demo is over, it is honoured only if a proof was accepted and is in a block.
    """
    records = list(records)
    receipts = [record for record in records if record.status is RequestStatus.CONFIRMED]
    lost = [record for record in receipts if not _is_honoured(record, history, is_over=is_over)]
    duplicated = [job.id for job in history.jobs.values() if len(job.admitted) > 1 or len(job.accepted) > 1]
    return ReceiptReport(len(receipts), lost, duplicated + _unrequested_jobs(records, history))


def _is_honoured(record: RequestRecord, history: EventHistory, *, is_over: bool) -> bool:
    job = history.jobs.get(record.task_id)
    if job is None or record.event not in job.admitted or job.ended:
        return False
    return not is_over or (bool(job.accepted) and job.accepted[0].height <= history.head)


def _unrequested_jobs(records: list[RequestRecord], history: EventHistory) -> list[str]:
    """A retry must not create a second job: a request without a receipt explains one job that no receipt names."""
    named = {record.task_id for record in records if record.status is RequestStatus.CONFIRMED}
    unanswered = len({record.number for record in records}) - len(named)
    return [id_ for id_ in history.jobs if id_ not in named][max(0, unanswered) :]
