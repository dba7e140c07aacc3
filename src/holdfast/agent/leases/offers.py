"""What an agent keeps of an offer, and which offers it has acknowledged without knowing their payload (JOB-010)."""

from __future__ import annotations

import asyncio

from holdfast.agent.leases.lease_run import LeaseTimes
from holdfast.agent.leases.records import AcceptedOffer
from holdfast.agent.leases.slots import Slots
from holdfast.agent.transport.work_stream import ActResult
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb


def forget_refused(slots: Slots, lease_id: bytes, answer: asyncio.Future[ActResult]) -> None:
    """An ACK that was refused, or lost with its stream: the next stream offers the lease again, where it lives."""
    if answer.cancelled() or not answer.result().is_done:
        slots.forget(lease_id)


def accepted_offer(offer: pb.Offer) -> AcceptedOffer:
    return AcceptedOffer(
        lease_id=offer.lease_id,
        task_id=offer.task_id,
        kind=offer.kind,
        attempt=offer.attempt,
        payload=offer.payload,
        proof=offer.proof,
        t_deadline_ms=offer.t_deadline_ms,
    )


def lease_times(offer: pb.Offer) -> LeaseTimes:
    return LeaseTimes(offer.time_ms, offer.renew_by_ms, offer.t_deadline_ms, offer.renewals)
