"""A job as the state keeps it: its transition table (JOB-007), and the row of the table `job`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.base.fsm import Transitions
from holdfast.core.base.values import AccountId, Digest, EventNo, Height, Kind, ReservationId, TaskId, Tier

TASK_ID_BYTES: Final = 32


class JobState(StrEnum):
    """Where a job is (JOB-007)."""

    QUEUED = "QUEUED"
    ASSIGNED = "ASSIGNED"
    COMPLETED = "COMPLETED"
    EXPIRED = "EXPIRED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class JobTransition(StrEnum):
    """What can happen to a job."""

    ASSIGN = "assign"
    RETURN = "return"
    ACCEPT = "accept"
    AGREE = "agree"
    """Enough of its replicas returned the same output (LEA-009)."""
    EXPIRE = "expire"
    EXHAUST = "exhaust"
    CANCEL = "cancel"
    REQUEUE = "requeue"


JOB_TRANSITIONS: Final[Transitions[JobState, JobTransition]] = {
    JobState.QUEUED: {
        JobTransition.ASSIGN: JobState.ASSIGNED,
        JobTransition.AGREE: JobState.COMPLETED,
        JobTransition.EXHAUST: JobState.FAILED,
        JobTransition.EXPIRE: JobState.EXPIRED,
        JobTransition.CANCEL: JobState.CANCELLED,
    },
    JobState.ASSIGNED: {JobTransition.RETURN: JobState.QUEUED, JobTransition.ACCEPT: JobState.COMPLETED},
    JobState.COMPLETED: {},
    JobState.EXPIRED: {},
    JobState.FAILED: {JobTransition.REQUEUE: JobState.QUEUED},
    JobState.CANCELLED: {},
}
LIVE_STATES: Final = frozenset({JobState.QUEUED, JobState.ASSIGNED})


class Job(msgspec.Struct, array_like=True, gc=False):
    """One job; a row of the table `job` under the event that admitted it."""

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
    """It waits until then: for its own time (JOB-013), or for a retry."""
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
    """How often an operator requeued it after it had failed (RTY-001)."""
    requeued_ms: int = 0
    """When it was last requeued; its time to live counts from then."""
    parent: TaskId = TaskId(b"")
    """Of a replica: its job (LEA-009)."""
    parent_event: EventNo = EventNo(0)
    """Of a replica: the key of its job's row, where the payload is."""
    quorum_n: int = 0
    """Of a job with replicas, and of each replica: how many must agree."""
    quorum_m: int = 0
    """Of a job with replicas: how many there are. The job waits for them and is not assigned itself."""
    is_public: int = 0
    """1: everybody may read it (JOB-010)."""
    input_digest: Digest = Digest(b"")
    """Of the bytes that it names as its input (JOB-003); empty where it has none."""
    run_ms_max: int = 0
    """How long one attempt may take; 0: as the renewals of a lease allow (LEA-004)."""
    run_at_ms: int = 0
    """JOB-013: the time before which it is not assigned; 0: it was ready at once."""


class FailedJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job that failed too often (RTY-001); a row of the table `failed_job` until it is requeued or purged."""

    event: EventNo
    """The key of the job's own row."""
    id: TaskId
    kind: Kind
    caller: AccountId
    max_fee: int
    attempts: int
    requeues: int
    reason: str
    """What failed last."""
    failed_ms: int


class SpecRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The payload of a job, kept out of memory; a row of the table `spec`, where it is small enough for its event."""

    event: EventNo
    raw: bytes


def ready_ms(job: Job) -> int:
    """JOB-013: from when on a job waits for a provider. Its age and its time to live count from then."""
    return job.run_at_ms or job.enqueue_ms


def expires_at_ms(job: Job) -> int:
    """TTL-001: whichever of a job's times to live ends first."""
    relative_ms, absolute_ms = job.relative_expires_ms, job.expires_ms
    return absolute_ms if relative_ms is None or absolute_ms < relative_ms else relative_ms


def reservation_id(job: Job, requeues: int | None = None) -> ReservationId:
    """The id of the reservation of a job's fee: the job's id, after the n-th requeue with n appended."""
    n = job.requeues if requeues is None else requeues
    return ReservationId(job.id + n.to_bytes(8, "big") if n else job.id)


def task_of_reservation(reservation: ReservationId) -> TaskId:
    """The job that the reservation is for."""
    return TaskId(reservation[:TASK_ID_BYTES])


def requeues_of_reservation(reservation: ReservationId) -> int:
    """How often the job had been requeued when the reservation was made."""
    return int.from_bytes(reservation[TASK_ID_BYTES:], "big")


def ceiling_of(job: Job) -> int:
    """MAT-002: the highest price of a unit that the job can pay; of a replica, from its part of the fee (LEA-009)."""
    return job.max_fee // (job.quorum_n or 1) // job.units if job.units else _NO_CEILING


_NO_CEILING: Final = 2**64


def pay_of(job: Job, price: int) -> int:
    """ESC-001: what is paid at this price, at most the fee; to each replica at most its part of it (LEA-009)."""
    return min(job.max_fee // (job.quorum_n or 1), job.units * price)


def earliest_read_height(job: Job) -> Height:
    """RES-002: a proof can be in the block of the admission, which is readable from the next block on."""
    return Height(job.height + 1)
