"""Commands and events of leases."""

from __future__ import annotations

from typing import ClassVar, Final

from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import Digest, LeaseId, ProviderId, TaskId
from holdfast.core.lease.model import Lease, LeaseStatus


class AckLease(Command, frozen=True):
    """The provider has received the job (LEA-003)."""

    id: LeaseId
    provider_id: ProviderId


class RenewLease(Command, frozen=True):
    """The provider needs more time (LEA-004). `renewal` counts from 1, so that a repeated request renews once."""

    id: LeaseId
    provider_id: ProviderId
    renewal: int


class DeclineLease(Command, frozen=True):
    """The provider does not accept the job (LEA-006)."""

    id: LeaseId
    provider_id: ProviderId
    reason: str = "DECLINED"


class FailLease(Command, frozen=True):
    """The provider could not complete the job: PROVIDER_FAIL (RTY-001), or its input is invalid (JOB-012)."""

    id: LeaseId
    provider_id: ProviderId
    reason: str = ""
    """In words; they begin with `INVALID_INPUT:` where the input is the fault."""
    is_input_valid: bool | None = None
    """What the node's own checker says of such an input; None where it cannot say."""


class ExpireDue(Command, frozen=True):
    """End what is over by now: leases without ACK, leases past their deadline, jobs past their time to live."""

    limit: int = 256


NO_JOB: Final = TaskId(b"")
"""The default of a field that was added later (CAN-005)."""


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
    """The units that it takes of the provider's quota in `epoch` (QUO-001)."""
    epoch: int = 0


class LeaseAcked(Event, frozen=True, tag=81):
    """The provider acknowledged the lease."""

    id: LeaseId
    at_ms: int


class LeaseRenewed(Event, frozen=True, tag=82):
    """Both deadlines moved."""

    id: LeaseId
    t_deadline_ms: int
    renew_by_ms: int
    is_late: bool
    job_id: TaskId = NO_JOB


class LeaseClosed(Event, frozen=True, tag=83):
    """A lease ended without a result; the job waits again from `not_before_ms` on."""

    public_name: ClassVar = "leaseCancelled"

    id: LeaseId
    status: LeaseStatus
    reason: str
    at_ms: int
    is_failure: bool
    """Whether it counts against the job and its provider (RTY-001)."""
    not_before_ms: int
    denied_until_ms: int = 0
    """Until then the provider is skipped for jobs of this class (LEA-006, RTY-003); 0: it is not."""
    job_id: TaskId = NO_JOB
    detail: str = ""
    """What the provider said, in words (JOB-012)."""
    claim_until_ms: int = 0
    """Where it called the input invalid: when the job fails unless another provider can try it."""


def close_without_penalty(lease: Lease, reason: str, now_ms: int, wait_ms: int = 0) -> LeaseClosed:
    """LEA-007: the lease ends and does not count as a failure; its job waits again, at once or after a while."""
    return LeaseClosed(
        id=lease.id,
        status=LeaseStatus.CANCELLED,
        reason=reason,
        at_ms=now_ms,
        is_failure=False,
        not_before_ms=now_ms + wait_ms,
        job_id=lease.job_id,
    )


class CompletionSubmitted(Event, frozen=True, tag=84):
    """The provider submitted a result; its verdict follows (RCV-001)."""

    lease_id: LeaseId
    digest: Digest
    size: int
    envelope: bytes
    at_ms: int
