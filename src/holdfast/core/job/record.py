"""A job as it is kept: its life as one table (JOB-007), and the record that is a row of the table `job`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.machine import Life
from holdfast.core.values import AccountId, Digest, EventNo, Height, Kind, TaskId, Tier


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
    EXPIRE = "expire"
    EXHAUST = "exhaust"
    CANCEL = "cancel"
    REQUEUE = "requeue"


_ENDS: Final = {JobAct.EXPIRE: JobState.EXPIRED, JobAct.CANCEL: JobState.CANCELLED}

JOB_LIFE: Final[Life[JobState, JobAct]] = {
    JobState.QUEUED: {JobAct.ASSIGN: JobState.ASSIGNED, JobAct.EXHAUST: JobState.FAILED, **_ENDS},
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


class Spec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The payload of a job, kept out of memory; a row of the table `spec`, where it is small enough for its event."""

    event: EventNo
    raw: bytes


def ends_ms(job: Job) -> int:
    """TTL-001: whichever of a job's times to live ends first."""
    return job.expires_ms if job.relative_expires_ms is None else min(job.expires_ms, job.relative_expires_ms)


def earliest_read_height(job: Job) -> Height:
    """RES-002: a proof can be in the very block the job was admitted in; that is read from the next one on."""
    return Height(job.height + 1)
