"""A lease as the state keeps it: id, transition table (LEA-002), deadlines, and the row of the table `lease`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from holdfast.core.base.canonical import framed, hash_from, hash_prefix
from holdfast.core.base.fsm import Transitions
from holdfast.core.base.values import Digest, EventNo, Kind, LeaseId, ProviderId, Seed, TaskId
from holdfast.core.index.due_index import DueIndex
from holdfast.core.policy import LeasePolicy
from holdfast.core.provider.model import HasProviders
from holdfast.core.queue.model import HasQueue
from holdfast.core.queue.quota import Quota

QUANTUM: Final = Kind.QUANTUM
_PREFIX: Final = hash_prefix("AICF|lease")


def lease_id(job_id: TaskId, provider_id: ProviderId, attempt: int, seed: Seed) -> LeaseId:
    """LEA-001: `attempt` counts the leases of the job from 0, so an id never repeats."""
    return hash_from(_PREFIX + framed(job_id) + _end(provider_id, attempt, seed))  # type: ignore[return-value]


@lru_cache(maxsize=4_096)  # the same for all jobs of a tick that a provider gets
def _end(provider_id: ProviderId, attempt: int, seed: Seed) -> bytes:
    return framed(provider_id, attempt, seed)


class LeaseStatus(StrEnum):
    """Where a lease is (LEA-002)."""

    ACTIVE = "ACTIVE"
    RENEWED = "RENEWED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    COMPLETED = "COMPLETED"


class LeaseTransition(StrEnum):
    """What can happen to a lease."""

    RENEW = "renew"
    CANCEL = "cancel"
    EXPIRE = "expire"
    COMPLETE = "complete"


_ENDS: Final = {
    LeaseTransition.CANCEL: LeaseStatus.CANCELLED,
    LeaseTransition.EXPIRE: LeaseStatus.EXPIRED,
    LeaseTransition.COMPLETE: LeaseStatus.COMPLETED,
}
LEASE_TRANSITIONS: Final[Transitions[LeaseStatus, LeaseTransition]] = {
    LeaseStatus.ACTIVE: {LeaseTransition.RENEW: LeaseStatus.RENEWED, **_ENDS},
    LeaseStatus.RENEWED: {LeaseTransition.RENEW: LeaseStatus.RENEWED, **_ENDS},
    LeaseStatus.CANCELLED: {},
    LeaseStatus.EXPIRED: {},
    LeaseStatus.COMPLETED: {},
}


class Lease(msgspec.Struct, array_like=True, gc=False):
    """One lease; a row of the table `lease` under the event that granted it."""

    event: EventNo
    id: LeaseId
    job_id: TaskId
    provider_id: ProviderId
    attempt: int
    t_start_ms: int
    t_deadline_ms: int
    renew_by_ms: int
    ack_by_ms: int
    price: int
    """The provider's price for a unit of work when the lease was granted."""
    duration_ms: int
    """How long it was granted for; the node's outages move its deadlines by no more than that in all (LEA-008)."""
    status: LeaseStatus = LeaseStatus.ACTIVE
    acked_ms: int | None = None
    renewals: int = 0
    late_renewals: int = 0
    credited_ms: int = 0
    """By how much outages moved the deadlines so far."""
    submitted: Digest | None = None
    """The output's digest, once submitted: from then on no deadline ends the lease (RCV-001)."""
    submitted_size: int = 0
    submitted_ms: int | None = None
    reason: str = ""
    ended_ms: int | None = None
    units: int = 0
    """What it takes of the provider's quota while it lives, and for good once it is completed (QUO-001)."""
    epoch: int = 0
    """The epoch in which the units count."""
    detail: str = ""
    """What its provider said about a failure, in words (JOB-012)."""


class Leases(msgspec.Struct):
    """Live leases by id, by job, by provider and by due time."""

    by_id: dict[LeaseId, Lease] = {}
    by_job: dict[TaskId, Lease] = {}
    by_provider: dict[ProviderId, dict[LeaseId, Lease]] = {}
    due_index: DueIndex = msgspec.field(default_factory=DueIndex)

    def add_many(self, leases: Iterable[Lease]) -> None:
        by_id, by_job, by_provider = self.by_id, self.by_job, self.by_provider
        for lease in leases:
            by_id[lease.id] = by_job[lease.job_id] = lease
            by_provider.setdefault(lease.provider_id, {})[lease.id] = lease
        self.due_index.schedule_many((lease.id, due_ms(lease)) for lease in leases)

    def remove_many(self, leases: Iterable[Lease]) -> None:
        by_id, by_job, by_provider = self.by_id, self.by_job, self.by_provider
        for lease in leases:
            del by_id[lease.id], by_job[lease.job_id]
            of_provider = by_provider[lease.provider_id]
            del of_provider[lease.id]
            if not of_provider:
                del by_provider[lease.provider_id]
        self.due_index.remove_many((lease.id, due_ms(lease)) for lease in leases)

    def of(self, provider_id: ProviderId) -> list[Lease]:
        """The live leases of this provider, in the order granted."""
        return list(self.by_provider.get(provider_id, {}).values())


class HasLeases(HasQueue, HasProviders, Protocol):
    """The parts of the state that this domain reads and changes."""

    leases: Leases
    attempts: dict[TaskId, list[Lease]]
    """The ended leases of jobs in memory, in order."""
    submissions: dict[LeaseId, bytes]
    """Proof envelopes that wait for their verdict."""
    assignments: int
    """The number of leases ever granted."""
    quotas: dict[ProviderId, Quota]
    class_denials: dict[bytes, int]
    """Until when a provider is skipped for a class of jobs (LEA-006)."""


def due_ms(lease: Lease) -> int:
    """When this lease expires: without an ACK at `ack_by_ms`, else at its deadline."""
    ack_by_ms, deadline_ms = lease.ack_by_ms, lease.t_deadline_ms
    return ack_by_ms if lease.acked_ms is None and ack_by_ms < deadline_ms else deadline_ms


def lease_ms(kind: Kind, policy: LeasePolicy) -> int:
    """LEA-002: T, the duration of a lease."""
    return policy.quantum_ms if kind is QUANTUM else policy.ai_ms


def is_live(lease: Lease, now_ms: int) -> bool:
    """LEA-005: at the deadline it is over."""
    return now_ms < lease.t_deadline_ms


def has_lapsed(lease: Lease, now_ms: int) -> bool:
    """LEA-005, RCV-001: its deadline has passed and nothing was submitted; a submission freezes every deadline."""
    return lease.submitted is None and not is_live(lease, now_ms)


def rebuild_leases(leases: list[Lease]) -> Leases:
    """The indexes of these leases."""
    rebuilt = Leases()
    rebuilt.add_many(leases)
    return rebuilt
