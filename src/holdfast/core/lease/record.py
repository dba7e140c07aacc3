"""A lease as it is kept: its life as one table (LEA-002), its marks, and the record that is a row of `lease`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.agenda import Agenda
from holdfast.core.machine import Life
from holdfast.core.policy import LeasePolicy
from holdfast.core.provider.record import Registry
from holdfast.core.queue.books import Admitting
from holdfast.core.quota import Quota
from holdfast.core.values import Digest, EventNo, Kind, LeaseId, ProviderId, TaskId


class LeaseStatus(StrEnum):
    """Where a lease is (LEA-002)."""

    ACTIVE = "ACTIVE"
    RENEWED = "RENEWED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    COMPLETED = "COMPLETED"


class LeaseAct(StrEnum):
    """What can happen to a lease."""

    RENEW = "renew"
    CANCEL = "cancel"
    EXPIRE = "expire"
    COMPLETE = "complete"


_ENDS: Final = {
    LeaseAct.CANCEL: LeaseStatus.CANCELLED,
    LeaseAct.EXPIRE: LeaseStatus.EXPIRED,
    LeaseAct.COMPLETE: LeaseStatus.COMPLETED,
}
LEASE_LIFE: Final[Life[LeaseStatus, LeaseAct]] = {
    LeaseStatus.ACTIVE: {LeaseAct.RENEW: LeaseStatus.RENEWED, **_ENDS},
    LeaseStatus.RENEWED: {LeaseAct.RENEW: LeaseStatus.RENEWED, **_ENDS},
    LeaseStatus.CANCELLED: {},
    LeaseStatus.EXPIRED: {},
    LeaseStatus.COMPLETED: {},
}


class Lease(msgspec.Struct, array_like=True, gc=False):
    """One lease; a row of the table `lease`, whose key is the event that gave it."""

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
    """Of the provider, for a unit of work, when the lease was given."""
    t_ms: int
    """How long it was given for; the node's outages move its marks by no more than that in all (LEA-008)."""
    status: LeaseStatus = LeaseStatus.ACTIVE
    acked_ms: int | None = None
    renewals: int = 0
    late_renewals: int = 0
    forgiven_ms: int = 0
    """By how much they did so far."""
    submitted: Digest | None = None
    """The output's digest, once handed in: from then on no mark ends the lease (RCV-001)."""
    submitted_size: int = 0
    submitted_ms: int | None = None
    reason: str = ""
    ended_ms: int | None = None
    units: int = 0
    """What it takes of the provider's quota while it lives, and for good once it is completed (QUO-001)."""
    epoch: int = 0
    """Whose quota that is."""


class Leases(msgspec.Struct):
    """Live leases by id, by job and by provider, and what comes due."""

    by_id: dict[LeaseId, Lease] = {}
    by_job: dict[TaskId, Lease] = {}
    by_provider: dict[ProviderId, dict[LeaseId, Lease]] = {}
    agenda: Agenda = msgspec.field(default_factory=Agenda)

    def add(self, lease: Lease) -> None:
        self.by_id[lease.id] = self.by_job[lease.job_id] = lease
        self.by_provider.setdefault(lease.provider_id, {})[lease.id] = lease
        self.agenda.put(lease.id, due_ms(lease))

    def remove(self, lease: Lease) -> None:
        self.agenda.remove(lease.id, due_ms(lease))
        del self.by_id[lease.id], self.by_job[lease.job_id]
        theirs = self.by_provider[lease.provider_id]
        del theirs[lease.id]
        if not theirs:
            del self.by_provider[lease.provider_id]

    def of(self, provider_id: ProviderId) -> list[Lease]:
        """What this provider holds, in the order given."""
        return list(self.by_provider.get(provider_id, {}).values())


class Leasing(Admitting, Registry, Protocol):
    """What this station needs of the state."""

    leases: Leases
    submissions: dict[LeaseId, bytes]
    """Proof envelopes that wait for their verdict."""
    assignments: int
    """Leases ever given."""
    quotas: dict[ProviderId, Quota]
    denials: dict[bytes, int]
    """Until when a provider is passed over for a class of jobs (LEA-006)."""


def due_ms(lease: Lease) -> int:
    """When this lease ends by itself: without an ACK soon, else at its deadline."""
    return lease.t_deadline_ms if lease.acked_ms is not None else min(lease.ack_by_ms, lease.t_deadline_ms)


def lease_ms(kind: Kind, policy: LeasePolicy) -> int:
    """LEA-002: T."""
    return policy.ai_ms if kind is Kind.AI else policy.quantum_ms


def is_live(lease: Lease, now_ms: int) -> bool:
    """LEA-005: at the deadline it is over."""
    return now_ms < lease.t_deadline_ms


def has_lapsed(lease: Lease, now_ms: int) -> bool:
    """LEA-005, RCV-001: its deadline is past, and nothing was handed in before: what was, no mark ends."""
    return lease.submitted is None and not is_live(lease, now_ms)


def collected(leases: list[Lease]) -> Leases:
    """The index made anew from the records."""
    made = Leases()
    for lease in leases:
        made.add(lease)
    return made
