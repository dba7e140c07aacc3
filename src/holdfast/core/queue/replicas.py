"""Replicas of a job (LEA-009): they are matched and leased like any other job, and live and end with their job.

They have no reservation of their own: they are paid from that of their job, in the block that resolves it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.event import Event
from holdfast.core.base.values import EventNo, ReservationId, TaskId
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.job.model import Job, JobTransition, reservation_id
from holdfast.core.job.quorum import Payment, replica_id
from holdfast.core.queue import apply as queue_apply
from holdfast.core.queue.messages import job_key
from holdfast.core.queue.model import HasQueue


class ReplicaAdmitted(Event, frozen=True, tag=59):
    """A replica waits. Its other fields are those of its job, which an earlier event of the decision admitted."""

    id: TaskId
    parent: TaskId
    index: int
    proof: str
    attempts: int = 0
    """Leases that it had before its job was requeued (RTY-001): the count goes on (LEA-001)."""
    event: EventNo = EventNo(0)
    """The key of its row, where it was requeued; 0: this event."""


class ReplicaEnded(Event, frozen=True, tag=60):
    """A replica ended without a result; the events for its job follow."""

    id: TaskId
    transition: JobTransition
    reason: str
    ended_ms: int


_OF_THE_JOB_ALONE: Final = {"quorum_m": 0, "requeues": 0, "requeued_ms": 0}


def apply_replica_admitted(state: HasQueue, event: ReplicaAdmitted) -> None:
    parent = state.queue.jobs[event.parent]
    number = event.event or state.last_event
    replica = msgspec.structs.replace(
        parent,
        event=number,
        id=event.id,
        proof=event.proof,
        attempts=event.attempts,
        parent=parent.id,
        parent_event=parent.event,
        **_OF_THE_JOB_ALONE,
    )
    queue_apply.add_live(state, [replica])
    if not event.event:
        state.claims.add(job_key(event.id), number)


def apply_replica_ended(state: HasQueue, event: ReplicaEnded) -> None:
    """The job keeps the reason of the last failure: its own end may repeat it."""
    replica = queue_apply.finish(state, event.id, event.transition, event.reason, event.ended_ms)
    parent = state.queue.jobs[replica.parent]
    parent.reason = event.reason
    state.touched["job"][parent.event] = parent


def split_payment(state: HasQueue, job: Job, paid: tuple[Payment, ...]) -> None:
    """ESC-001: each replica that agreed gets a part of the reservation; the first one is paid from the job's own.

    A part is a separate reservation under the replica's id: a reorg moves it like any other.
    """
    state.quorums[job.id].paid = paid
    for payment in paid[1:]:
        if payment.amount:
            escrow_apply.split_reservation(state, reservation_id(job), _part_id(job, payment), payment.amount)


def settle_quorum(state: HasQueue, job: Job, number: EventNo) -> None:
    """Pay all parts in the open block, and refund the rest; a reorg rolls this back and does it again."""
    height, paid = state.open_height, state.quorums[job.id].paid
    first = paid[0]
    parts = [(number, _part_id(job, each), each.account, each.amount) for each in paid[1:] if each.amount]
    escrow_apply.settle_all(state, height, [(number, reservation_id(job), first.account, first.amount), *parts])
    job.charged, job.payee, job.settled_height = sum(payment.amount for payment in paid), first.account, height
    state.touched["job"][job.event] = job
    for payment in paid:
        replica = state.queue.jobs[replica_id(job.id, payment.index)]
        replica.charged, replica.payee, replica.settled_height = payment.amount, payment.account, height
        state.touched["job"][replica.event] = replica


def _part_id(job: Job, payment: Payment) -> ReservationId:
    return ReservationId(replica_id(job.id, payment.index))
