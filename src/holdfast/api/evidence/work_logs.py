"""What running work says (EVD-005), for its caller while it runs: records of evidence, kept in memory for a while.

They are no events of the journal. What is durable is the evidence itself; a node that restarts serves what comes from
then on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

import msgspec

from holdfast.core.base.values import LeaseId, ProviderId, TaskId
from holdfast.core.job.model import Job
from holdfast.engine.queries.jobs import GetLiveJob, GetLiveLease
from holdfast.engine.queries.query import Query

PROGRESS: Final = b'"payload_type":"PROGRESS"'
JOBS_MAX: Final = 10_000
JOB_BYTES_MAX: Final = 1 << 20
"""An agent sends at most 64 KiB for a lease (SEC-002); this bounds one that does not keep to it."""
TEXT_MAX: Final = 2_000


class LogEntry(msgspec.Struct, frozen=True):
    """One message of running work; percent where it says how far it is."""

    attempt: int
    sequence: int
    text: str
    percent: int | None = None

    @property
    def id(self) -> str:
        return f"{self.attempt}:{self.sequence}"


class JobLog:
    """The messages of one job, in the order in which they came."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.bytes = 0
        self.changed = asyncio.Event()
        """Replaced with every change: whoever waits for one is woken."""


class _Progress(msgspec.Struct, frozen=True):
    lease_id: str
    number: int | None = None
    text: str = ""
    percent: int | None = None


class _ProgressRecord(msgspec.Struct, frozen=True):
    payload_type: str
    payload: _Progress


_decode: Final = msgspec.json.Decoder(_ProgressRecord).decode


T = TypeVar("T")


class LiveQueries(Protocol):
    """The engine, as far as this needs it."""

    def query_undurable(self, query: Query[T]) -> T: ...


class WorkLogs:
    """Logs by job; those of jobs without news for the longest time are forgotten."""

    def __init__(self) -> None:
        self._logs: OrderedDict[TaskId, JobLog] = OrderedDict()

    def log_of(self, task_id: TaskId) -> JobLog:
        log = self._logs.get(task_id)
        if log is None:
            log = self._logs[task_id] = JobLog()
            while len(self._logs) > JOBS_MAX:
                self._logs.popitem(last=False)
        self._logs.move_to_end(task_id)
        return log

    def add(self, engine: LiveQueries, provider_id: ProviderId, lines: Iterable[bytes]) -> None:
        """Records that were just stored; most are of other types."""
        for line in lines:
            if PROGRESS in line:
                self._add_line(engine, provider_id, line)

    def _add_line(self, engine: LiveQueries, provider_id: ProviderId, line: bytes) -> None:
        try:
            said = _decode(line).payload
            lease = engine.query_undurable(GetLiveLease(LeaseId(bytes.fromhex(said.lease_id))))
        except (msgspec.DecodeError, ValueError):
            return
        if said.number is None or lease is None or lease.provider_id != provider_id:
            return
        job = engine.query_undurable(GetLiveJob(lease.job_id))
        task_id = job.parent if isinstance(job, Job) and job.parent else lease.job_id
        log = self.log_of(task_id)
        if log.bytes + len(line) > JOB_BYTES_MAX:
            return
        log.bytes += len(line)
        log.entries.append(LogEntry(lease.attempt, said.number, said.text[:TEXT_MAX], said.percent))
        changed, log.changed = log.changed, asyncio.Event()
        changed.set()
