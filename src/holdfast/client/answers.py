"""What a node answers, typed: a misspelt field is an error of the type checker, not of the night.

Fields that a newer node adds are ignored, so that an older client goes on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.client.errors import NodeRefused


class JobReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The queue holds the job durably and its fee is reserved (JOB-006)."""

    task_id: str
    kind: str
    caller: str
    height: int
    tx_hash: str
    nonce: int
    request_hash: str
    earliest_read_height: int
    reserved: int
    enqueue_ms: int
    expires_ms: int
    expires_height: int
    event: int
    """The number of the event that admitted it: what happens to the job comes after it."""
    is_repeat: bool
    not_before_ms: int = 0
    """It waits until then (JOB-013); 0: it is ready at once."""


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a readable result: what was made, by whom, at which price, in which block."""

    task_id: str
    status: str
    height_resolved: int
    readable_from: int
    result_digest: str
    result_size: int
    proof_nullifier: str
    da_commitment: str | None
    leaf_index: int
    kind: str | None = None
    mime_type: str = ""
    """As the provider declared it; empty where that is not known or not for this key."""
    provider_id: str = ""
    payee: str = ""
    charged: int = 0
    method: str = ""
    caller: str = ""
    consumed_height: int | None = None


class JobOutcome(msgspec.Struct, frozen=True):
    """How one job ended: with a result, or with the refusal that reading it gets."""

    task_id: str
    result: JobResult | None = None
    error: NodeRefused | None = None

    def unwrap(self) -> JobResult:
        """The result; raises the error where there is none."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as it is shown to this client (EVT-001)."""

    number: int
    time_ms: int
    type: str
    event: dict[str, Any]
    index: int = 0
    """Not 0 where a block's event means it for one result (EVT-002)."""

    @property
    def cursor(self) -> str:
        """From which `events` resumes after this one."""
        return f"{self.number}.{self.index}" if self.index else f"{self.number}"

    @property
    def task_id(self) -> str | None:
        """The job that it is about."""
        return self.event.get("task_id") or self.event.get("jobId")


class JobLogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what a running job reports: a log line, or its progress. Nothing proves it."""

    attempt: int
    sequence: int
    text: str
    percent: int | None = None

    @property
    def cursor(self) -> str:
        """From which `logs` resumes after this one."""
        return f"{self.attempt}:{self.sequence}"


class QuotedProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that could run the job now."""

    provider_id: str
    name: str
    region: str
    price: int
    cost: int
    free_slots: int


class RefusedProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that could not, and the filter that says so."""

    provider_id: str
    name: str
    why_not: str


class JobQuote(msgspec.Struct, frozen=True, kw_only=True):
    """Who could run a job now (JOB-008); it is not binding."""

    position: int
    waiting: int
    could: int
    could_not: int
    providers: list[QuotedProvider]
    refused: list[RefusedProvider]
    not_before_ms: int = 0
    """Until then it waits for its time, or for a retry, whoever could run it (JOB-013)."""


class CancelReply(msgspec.Struct, frozen=True, kw_only=True):
    """The job is cancelled, or was before."""

    event: int
    is_repeat: bool


class ScheduleFiring(msgspec.Struct, frozen=True, kw_only=True):
    """One firing of a schedule: the job that it enqueued, or why that was refused."""

    due_ms: int
    at_ms: int
    missed: int
    """How many more times were due by then; they are not made up for."""
    task_id: str = ""
    rule: str = ""
    refusal: str = ""
    message: str = ""


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is now (JOB-014)."""

    id: str
    name: str
    caller: str
    state: str
    """ACTIVE, PAUSED or ENDED."""
    reason: str
    cron: str
    interval_ms: int
    offset_min: int
    next_ms: int | None
    max_fee: int
    payload: dict[str, Any]
    runs_left: int | None
    until_ms: int | None
    created_ms: int
    fired: int
    refused: int
    refusals_in_row: int
    firings: list[ScheduleFiring]
    """The last ones, the newest at the end."""
    event: int


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some schedules, and where the next ones begin."""

    schedules: list[ScheduleInfo]
    next_cursor: int | None


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which node answers, and how far its journal and its tables have come."""

    version: str
    network: str
    chain_id: int
    role: str
    phase: str
    event: int
    time_ms: int
    tables_as_of: int


Job = str | JobReceipt
"""How a job is named: by its id, or by its receipt, which also says when it began."""


def task_id_of(job: Job) -> str:
    return job if isinstance(job, str) else job.task_id
