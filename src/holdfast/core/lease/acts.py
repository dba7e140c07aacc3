"""What can be asked about leases and what then happened: the station's commands and events."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.event import Event
from holdfast.core.lease.record import Lease, LeaseStatus
from holdfast.core.values import Digest, LeaseId, ProviderId, TaskId


class AckLease(msgspec.Struct, frozen=True, gc=False):
    """The provider has the work (LEA-003)."""

    id: LeaseId
    provider_id: ProviderId


class RenewLease(msgspec.Struct, frozen=True, gc=False):
    """The provider needs more time (LEA-004). `renewal` counts from 1, so that asking again renews once."""

    id: LeaseId
    provider_id: ProviderId
    renewal: int


class DeclineLease(msgspec.Struct, frozen=True, gc=False):
    """The provider does not want the work (LEA-006)."""

    id: LeaseId
    provider_id: ProviderId
    reason: str = "DECLINED"


class FailLease(msgspec.Struct, frozen=True, gc=False):
    """The provider could not do the work: PROVIDER_FAIL (RTY-001)."""

    id: LeaseId
    provider_id: ProviderId
    reason: str = ""


class Reap(msgspec.Struct, frozen=True, gc=False):
    """End what is over by now: leases without ACK, leases past their deadline, jobs past their time to live."""

    limit: int = 256


NO_JOB: Final = TaskId(b"")
"""Of events that were written before they named the job; its requester is not told of those."""


class JobAssigned(Event, frozen=True, tag=80):
    """A provider holds a job (LEA-001, LEA-002)."""

    lease_id: LeaseId
    job_id: TaskId
    provider_id: ProviderId
    attempt: int
    t_start_ms: int
    t_deadline_ms: int
    renew_by_ms: int
    ack_by_ms: int
    price: int
    relative_expires_ms: int
    """When the job's time ends, counted from its first lease (TTL-001)."""
    units: int = 0
    """What it takes of the provider's quota in `epoch`; leases from before there were quotas take nothing (QUO-001)."""
    epoch: int = 0


class LeaseAcked(Event, frozen=True, tag=81):
    """The provider has said that it holds the job."""

    id: LeaseId
    at_ms: int


class LeaseRenewed(Event, frozen=True, tag=82):
    """Both marks moved."""

    id: LeaseId
    t_deadline_ms: int
    renew_by_ms: int
    is_late: bool
    job_id: TaskId = NO_JOB


class LeaseClosed(Event, frozen=True, tag=83):
    """A lease ended without a result; the job waits again from `not_before_ms` on."""

    id: LeaseId
    status: LeaseStatus
    reason: str
    at_ms: int
    is_failure: bool
    """Whether it counts against the job and its provider (RTY-001)."""
    not_before_ms: int
    denied_until_ms: int = 0
    """Until then the provider is passed over for jobs of this class (LEA-006, RTY-003); 0: it is not."""
    job_id: TaskId = NO_JOB


def cancelled(lease: Lease, reason: str, now_ms: int, not_before_ms: int) -> LeaseClosed:
    """LEA-007: its end without blame for anybody."""
    told = (LeaseStatus.CANCELLED, reason, now_ms, False, not_before_ms)
    return LeaseClosed(lease.id, *told, job_id=lease.job_id)


class CompletionSubmitted(Event, frozen=True, tag=84):
    """The provider handed a result in; its verdict follows (RCV-001)."""

    lease_id: LeaseId
    digest: Digest
    size: int
    envelope: bytes
    at_ms: int


class JobExpired(Event, frozen=True, tag=53):
    """A job's time to live ended; its money goes back in the open block (TTL-001)."""

    id: TaskId
    reason: str
    ended_ms: int


class JobFailed(Event, frozen=True, tag=54):
    """A job failed too often; its money goes back in the open block (RTY-001)."""

    id: TaskId
    reason: str
    ended_ms: int
