"""Jobs by the beginning of their id, which is what people type: found by the index of claims."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.values import EventNo, TaskId
from holdfast.core.index.unique_ids import claim_id
from holdfast.core.job.model import Job
from holdfast.core.queue.messages import job_key
from holdfast.engine.queries.records import job_row
from holdfast.engine.queries.source import ReadSource

ID_DIGITS: Final = 64
CLAIMS_READ: Final = 400
"""Of a short beginning many claims are of other records; more than these are not looked at."""


async def jobs_beginning_with(source: ReadSource, digits: str, limit: int) -> list[TaskId]:
    """The ids of jobs that begin with these hexadecimal digits, all that are durable now included."""
    await source.wait_tables(source.replication_status().tip.last)
    low, high = (bytes.fromhex(digits.ljust(ID_DIGITS, filler)) for filler in "0f")
    # The first byte of a claim's id has its kind mixed in: two ids of jobs are in the order of their claims only
    # where their first bytes are equal, which a beginning of two digits or more sees to.
    bounds = claim_id(job_key(TaskId(low))), claim_id(job_key(TaskId(high)))
    found = list[TaskId]()
    for event in await source.tables.find_claim_events(*bounds, CLAIMS_READ):
        row: Job | None = await job_row(source, EventNo(event))
        if row is not None and row.id.hex().startswith(digits) and row.id not in found:
            found.append(row.id)
            if len(found) == limit:
                break
    return found
