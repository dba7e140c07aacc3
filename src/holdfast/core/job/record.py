"""A job as it is kept: its life as one table (JOB-007), and the record that is a row of the table `job`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.machine import Life
from holdfast.core.values import AccountId, Digest, EventNo, Height, HoldId, Kind, TaskId, Tier

TASK_ID_BYTES: Final = 32


class JobState(StrEnum):
    """Where a job is (JOB-007)."""

    QUEUED = "QUEUED"
    ASSIGNED = "ASSIGNED"
    COMPLETED = "COMPLETED"
    EXPIRED = "EXPIRED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class JobAct(StrEnum):
    """What can happen to a job."""

    ASSIGN = "assign"
    RETURN = "return"
    ACCEPT = "accept"
    AGREE = "agree"
    """Enough of its replicas said the same (LEA-009)."""
    EXPIRE = "expire"
    EXHAUST = "exhaust"
    CANCEL = "cancel"
    REQUEUE = "requeue"


_ENDS: Final = {JobAct.EXPIRE: JobState.EXPIRED, JobAct.CANCEL: JobState.CANCELLED}

JOB_LIFE: Final[Life[JobState, JobAct]] = {
    JobState.QUEUED: {
        JobAct.ASSIGN: JobState.ASSIGNED,
        JobAct.AGREE: JobState.COMPLETED,
        JobAct.EXHAUST: JobState.FAILED,
        **_ENDS,
    },
    JobState.ASSIGNED: {JobAct.RETURN: JobState.QUEUED, JobAct.ACCEPT: JobState.COMPLETED},
    JobState.COMPLETED: {},
    JobState.EXPIRED: {},
    JobState.FAILED: {JobAct.REQUEUE: JobState.QUEUED},
    JobState.CANCELLED: {},
}
LIVE: Final = frozenset({JobState.QUEUED, JobState.ASSIGNED})


class Job(msgspec.Struct, array_like=True, gc=False):
    """One job; a row of the table `job`, whose key is the event that admitted it."""

    event: EventNo
    id: TaskId
    kind: Kind
    caller: AccountId
    tier: Tier
    height: Height
    """Of the block that was open at admission (JOB-001)."""
    tx_hash: Digest
    nonce: int
    request_hash: Digest
    size_bytes: int
    spec_digest: Digest
    """Of the payload's bytes: beside the journal's batch where they are large (ENG-007)."""
    max_fee: int
    units: int
    priority: int
    enqueue_ms: int
    expires_ms: int
    requirements: bytes
    proof: str
    state: JobState = JobState.QUEUED
    attempts: int = 0
    """Leases so far."""
    failures: int = 0
    not_before_ms: int = 0
    """A retry waits until then."""
    relative_expires_ms: int | None = None
    charged: int | None = None
    payee: AccountId | None = None
    settled_height: Height | None = None
    reason: str = ""
    """Why it ended, or what failed last."""
    ended_ms: int | None = None
    expires_height: Height = Height(0)
    """The last block in which a proof can be accepted (TTL-001); 0 where only time ends it."""
    requeues: int = 0
    """How often an operator put it back after it had failed (RTY-001)."""
    requeued_ms: int = 0
    """When that was last; its time to live counts from then."""
    parent: TaskId = TaskId(b"")
    """Of a replica: the job that it is one of (LEA-009)."""
    parent_event: EventNo = EventNo(0)
    """And the key of that one's row, where the payload is."""
    quorum_n: int = 0
    """Of a job that has replicas: so many must agree"""
    quorum_m: int = 0
    """of so many. It waits for them, and is given to nobody itself."""


class FailedJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job that failed too often (RTY-001); a row of the table `failed_job` until it is put back or buried."""

    event: EventNo
    """The job's: the key of its own row."""
    id: TaskId
    kind: Kind
    caller: AccountId
    max_fee: int
    attempts: int
    requeues: int
    reason: str
    """What failed last."""
    failed_ms: int


class Spec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The payload of a job, kept out of memory; a row of the table `spec`, where it is small enough for its event."""

    event: EventNo
    raw: bytes


def ends_ms(job: Job) -> int:
    """TTL-001: whichever of a job's times to live ends first."""
    return job.expires_ms if job.relative_expires_ms is None else min(job.expires_ms, job.relative_expires_ms)


def hold_of(job: Job, requeues: int | None = None) -> HoldId:
    """Under which name a job's fee is reserved: its own, and after the n-th requeueing its own with n behind it."""
    n = job.requeues if requeues is None else requeues
    return HoldId(job.id + n.to_bytes(8, "big") if n else job.id)


def task_of(hold: HoldId) -> TaskId:
    """Whose fee it is."""
    return TaskId(hold[:TASK_ID_BYTES])


def requeues_of(hold: HoldId) -> int:
    """How often the job had been put back when this was reserved."""
    return int.from_bytes(hold[TASK_ID_BYTES:], "big")


def earliest_read_height(job: Job) -> Height:
    """RES-002: a proof can be in the very block the job was admitted in; that is read from the next one on."""
    return Height(job.height + 1)
