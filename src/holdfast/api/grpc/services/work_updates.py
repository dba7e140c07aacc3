"""Builds the node's messages on the work stream: everything that piled up for an agent becomes one message."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.core.base.canonical import canonical, decode
from holdfast.core.base.event import Event
from holdfast.core.base.values import LeaseId
from holdfast.core.job.model import Job, pay_of
from holdfast.core.lease.messages import JobAssigned, LeaseAcked, LeaseClosed
from holdfast.core.lease.model import Lease
from holdfast.core.proof.messages import ProofAccepted, VoteCast
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.queries.jobs import GetLiveJob, GetLiveLease
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

UPDATE_BYTES_MAX: Final = 1 << 20
"""Payloads in one message, as long as there is more than one: a larger group is sent as several messages."""
PROOF_INVALID: Final = "PROOF_INVALID"


class PendingOffer(msgspec.Struct, frozen=True, gc=False):
    """A live lease that is to be offered, with its job as it is now."""

    job: Job
    lease_id: LeaseId
    lease: JobAssigned | Lease
    is_acked: bool = False
    is_submitted: bool = False
    renewals: int = 0

    @property
    def is_readable(self) -> bool:
        """JOB-010: the payload of a private job follows the ACK."""
        return bool(self.job.is_public) or self.is_acked


class UpdateBuilder:
    """What is to be sent next. `take` begins anew."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lost: dict[bytes, pb.Lost] = {}
        self._verdicts: list[pb.Verdict] = []
        self._offers: dict[bytes, PendingOffer] = {}
        self._acts_done: list[pb.ActsDone] = []

    def add_event(self, event: Event) -> None:
        match event:
            case JobAssigned() as assigned:
                self._offer(assigned)
            case LeaseAcked(id=lease_id):
                self._offer_payload(lease_id)
            case ProofAccepted(lease_id=lease_id) | VoteCast(lease_id=lease_id):
                self._verdicts.append(pb.Verdict(lease_id=lease_id, is_accepted=True, reason=event.reasons))
            case LeaseClosed(id=lease_id, reason=reason) if reason == PROOF_INVALID:
                self._verdicts.append(pb.Verdict(lease_id=lease_id, is_accepted=False, reason=reason))
            case LeaseClosed(id=lease_id, reason=reason):
                if self._offers.pop(lease_id, None) is None:  # else the agent has not heard of it yet
                    self._lost[lease_id] = pb.Lost(lease_id=lease_id, reason=reason)

    def add_acts_done(self, done: pb.ActsDone) -> None:
        self._acts_done.append(done)

    async def take(self) -> list[pb.WorkResponse]:
        """The messages: mostly one, and none where nothing is to be sent. Offers come before the answers to acts."""
        if not (self._offers or self._lost or self._verdicts or self._acts_done):
            return []
        offers, lost, verdicts, acts_done = self._offers, self._lost, self._verdicts, self._acts_done
        self._lost, self._verdicts, self._offers, self._acts_done = {}, [], {}, []
        messages, size = [pb.WorkResponse()], 0
        for offer, payload in zip(offers.values(), await self._payloads(list(offers.values())), strict=True):
            if size and size + len(payload) > UPDATE_BYTES_MAX:
                messages.append(pb.WorkResponse())
                size = 0
            self._add_offer(messages[-1].updates, offer, payload)
            size += len(payload)
        messages[0].updates.lost.extend(lost.values())
        messages[0].updates.verdicts.extend(verdicts)
        messages[-1].updates.acts_done.extend(acts_done)
        return messages

    # ------------------------------------------------------------------------------------ offers

    def _offer(self, assigned: JobAssigned) -> None:
        """The event is durable, and so is its job: an undurable read is enough."""
        job = self._engine.query_undurable(GetLiveJob(assigned.job_id))
        if job is not None:
            self._offers[assigned.lease_id] = PendingOffer(job, assigned.lease_id, assigned)

    def repeat_offer(self, lease: Lease) -> None:
        """A live lease, at the beginning of a stream."""
        job = self._engine.query_undurable(GetLiveJob(lease.job_id))
        if job is not None:
            is_acked, is_submitted = lease.acked_ms is not None, lease.submitted is not None
            self._offers[lease.id] = PendingOffer(job, lease.id, lease, is_acked, is_submitted, lease.renewals)

    def _offer_payload(self, lease_id: LeaseId) -> None:
        """JOB-010: the payload of a private job follows the ACK. Of a public one the agent has it already."""
        lease = self._engine.query_undurable(GetLiveLease(lease_id))
        job = self._engine.query_undurable(GetLiveJob(lease.job_id)) if lease is not None else None
        if lease is not None and job is not None and not job.is_public:
            self.repeat_offer(lease)

    async def _payloads(self, offers: Sequence[PendingOffer]) -> list[bytes]:
        """What the provider may read of each, from one read for all."""
        payloads = iter(await queries.specs(self._engine, [each.job for each in offers if each.is_readable]))
        return [next(payloads) if each.is_readable else b"" for each in offers]

    def _add_offer(self, updates: pb.Updates, offer: PendingOffer, payload: bytes) -> None:
        """PRV-005: pay, deadline and proof are named before the ACK."""
        job, lease = offer.job, offer.lease
        updates.offers.add(
            lease_id=offer.lease_id,
            task_id=job.id,
            kind=job.kind,
            attempt=lease.attempt,
            payload=payload,
            requirements=_requirements(job.requirements),
            t_start_ms=lease.t_start_ms,
            t_deadline_ms=lease.t_deadline_ms,
            renew_by_ms=lease.renew_by_ms,
            ack_by_ms=lease.ack_by_ms,
            time_ms=self._engine.now_ms(),
            proof=job.proof,
            pay=pay_of(job, lease.price),
            is_acked=offer.is_acked,
            is_submitted=offer.is_submitted,
            renewals=offer.renewals,
        )


@lru_cache(maxsize=1_024)  # most jobs require the same as others do
def _requirements(requirements: bytes) -> bytes:
    """What the job requires of its provider. Which others may run it is not the provider's to know."""
    needs: Any = decode(requirements)
    if not needs.keys() & {"allow", "deny"}:
        return requirements
    return canonical({name: value for name, value in needs.items() if name not in ("allow", "deny")})
