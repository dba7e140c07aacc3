"""Builds the node's messages on the work stream: everything that piled up for an agent becomes one message."""

from __future__ import annotations

from typing import Any, Final

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


class UpdateBuilder:
    """What is to be sent next. `take` begins anew."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lost: dict[bytes, pb.Lost] = {}
        self._verdicts: list[pb.Verdict] = []
        self._offers: dict[bytes, pb.Offer] = {}
        self._acts_done: list[pb.ActsDone] = []

    async def add_event(self, event: Event) -> None:
        match event:
            case JobAssigned() as assigned:
                await self._offer(assigned)
            case LeaseAcked(id=lease_id):
                await self._offer_payload(lease_id)
            case ProofAccepted(lease_id=lease_id) | VoteCast(lease_id=lease_id):
                self._verdicts.append(pb.Verdict(lease_id=lease_id, is_accepted=True, reason=event.reasons))
            case LeaseClosed(id=lease_id, reason=reason) if reason == PROOF_INVALID:
                self._verdicts.append(pb.Verdict(lease_id=lease_id, is_accepted=False, reason=reason))
            case LeaseClosed(id=lease_id, reason=reason):
                if self._offers.pop(lease_id, None) is None:  # else the agent has not heard of it yet
                    self._lost[lease_id] = pb.Lost(lease_id=lease_id, reason=reason)

    def add_acts_done(self, done: pb.ActsDone) -> None:
        self._acts_done.append(done)

    def take(self) -> list[pb.Updates]:
        """The messages: mostly one, and none where nothing is to be sent. Offers come before the answers to acts."""
        groups, size = [list[pb.Offer]()], 0
        for offer in self._offers.values():
            if groups[-1] and size + len(offer.payload) > UPDATE_BYTES_MAX:
                groups.append([])
                size = 0
            groups[-1].append(offer)
            size += len(offer.payload)
        messages = [pb.Updates(offers=offers) for offers in groups]
        messages[0].lost.extend(self._lost.values())
        messages[0].verdicts.extend(self._verdicts)
        messages[-1].acts_done.extend(self._acts_done)
        is_empty = not (self._offers or self._lost or self._verdicts or self._acts_done)
        self._lost, self._verdicts, self._offers, self._acts_done = {}, [], {}, []
        return [] if is_empty else messages

    # ------------------------------------------------------------------------------------ offers

    async def _offer(self, assigned: JobAssigned) -> None:
        """The event is durable, and so is its job: an undurable read is enough."""
        job = self._engine.query_undurable(GetLiveJob(assigned.job_id))
        if job is not None:
            await self._add_offer(job, assigned.lease_id, assigned)

    async def repeat_offer(self, lease: Lease) -> None:
        """A live lease, at the beginning of a stream."""
        job = self._engine.query_undurable(GetLiveJob(lease.job_id))
        if job is not None:
            progress = {"is_acked": lease.acked_ms is not None, "is_submitted": lease.submitted is not None}
            await self._add_offer(job, lease.id, lease, **progress, renewals=lease.renewals)

    async def _offer_payload(self, lease_id: LeaseId) -> None:
        """JOB-010: the payload of a private job follows the ACK. Of a public one the agent has it already."""
        lease = self._engine.query_undurable(GetLiveLease(lease_id))
        job = self._engine.query_undurable(GetLiveJob(lease.job_id)) if lease is not None else None
        if lease is not None and job is not None and not job.is_public:
            await self.repeat_offer(lease)

    async def _add_offer(self, job: Job, lease_id: LeaseId, lease: JobAssigned | Lease, **progress: int) -> None:
        """PRV-005: pay, deadline and proof are named before the ACK."""
        is_readable = job.is_public or bool(progress.get("is_acked"))
        self._offers[lease_id] = pb.Offer(
            lease_id=lease_id,
            task_id=job.id,
            kind=job.kind,
            attempt=lease.attempt,
            payload=await queries.spec(self._engine, job) if is_readable else b"",
            requirements=_requirements(job),
            t_start_ms=lease.t_start_ms,
            t_deadline_ms=lease.t_deadline_ms,
            renew_by_ms=lease.renew_by_ms,
            ack_by_ms=lease.ack_by_ms,
            time_ms=self._engine.now_ms(),
            proof=job.proof,
            pay=pay_of(job, lease.price),
            **progress,  # type: ignore[arg-type]
        )


def _requirements(job: Job) -> bytes:
    """What the job requires of its provider. Which others may run it is not the provider's to know."""
    needs: Any = decode(job.requirements)
    if not needs.keys() & {"allow", "deny"}:
        return job.requirements
    return canonical({name: value for name, value in needs.items() if name not in ("allow", "deny")})
