"""The rows and claims that a fold has changed, as the tables store them (ENG-004).

A job is one row: its ended leases are packed into it, as many as memory has. A lease ends with a step of its job,
which writes the row anyway, so a job that began and ended between two writes is written once. A live lease is in memory
wherever it is read. Only a job that was evicted and requeued has later leases in rows of their own: earlier ones are
in its row, and memory does not know them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.index.touch import Marks
from holdfast.core.index.unique_ids import Claim
from holdfast.core.job.model import Job
from holdfast.core.lease.model import Lease
from holdfast.core.state import State
from holdfast.ports import Row, row_deleted

Rows = dict[str, list[Row]]
Claimed = list[tuple[bytes, Claim]]
KEEP: Final = None
"""In a packed column: what the row holds stays."""
_pack = msgspec.msgpack.Encoder().encode
_as_tuple = msgspec.structs.astuple


def take_rows(state: State) -> tuple[Rows, Claimed]:
    """The rows and claims that changed since the last call, as they are now; a row that was deleted says so."""
    touched, rows = state.touched, Rows()
    if touched["lease"]:
        rows["lease"] = _take_leases(state, touched["lease"])
    if touched["job"]:
        rows["job"] = _take_jobs(state, touched["job"])
    for table, records in touched.items():
        if records:
            rows[table] = [
                _as_tuple(record) if record is not None else row_deleted(key) for key, record in records.items()
            ]
            records.clear()
    return {table: changed for table, changed in rows.items() if changed}, state.claims.drain_recent()


def count_changed(state: State) -> int:
    return sum(map(len, state.touched.values())) + len(state.claims.recent)


def _take_leases(state: State, leases: Marks) -> list[Row]:
    """The rows of changed leases that their job's row cannot hold: those after an eviction. A first one is none."""
    rows, peek = list[Row](), state.queue.jobs.peek
    for key, lease in leases.items():
        if not isinstance(lease, Lease):
            rows.append(row_deleted(key))
        elif lease.attempt and (job := peek(lease.job_id)) is not None and not _has_all_leases(state, job):
            rows.append(_as_tuple(lease))
    leases.clear()
    return rows


def _take_jobs(state: State, jobs: Marks) -> list[Row]:
    """Each with its ended leases packed; KEEP where it has none, or where memory does not have all of them."""
    rows, attempts = list[Row](), state.attempts.get
    for key, job in jobs.items():
        if not isinstance(job, Job):
            rows.append(row_deleted(key))
            continue
        ended = attempts(job.id)
        leases = _pack(ended) if ended and _has_all_leases(state, job) else KEEP
        rows.append(_as_tuple(job) + (leases,))  # noqa: RUF005 - unpacking takes three times as long
    jobs.clear()
    return rows


def _has_all_leases(state: State, job: Job) -> bool:
    return len(state.attempts.get(job.id, ())) + (job.id in state.leases.by_job) == job.attempts
