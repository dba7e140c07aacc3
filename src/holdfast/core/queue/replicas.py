"""Replicas of a job (LEA-009): jobs that are matched and leased like any other, and live and end with the one they are
of. They have no reservation of their own: what they earn is paid from that of their job, in the block that resolves it.
"""

from __future__ import annotations

from holdfast.core.escrow import apply as money
from holdfast.core.escrow.books import HoldAct
from holdfast.core.event import Event
from holdfast.core.job.quorum import Payment, replica_id, replica_ids
from holdfast.core.job.record import Job, JobAct, hold_of
from holdfast.core.queue import apply as queue
from holdfast.core.queue.acts import job_key
from holdfast.core.queue.books import Admitting
from holdfast.core.values import Amount, EventNo, HoldId, TaskId


class ReplicaAdmitted(Event, frozen=True, tag=59):
    """A replica waits. All else of it is as its job has it, whose admission, or requeueing, is just before."""

    id: TaskId
    parent: TaskId
    index: int
    proof: str
    attempts: int = 0
    """Leases that it had before its job was put back (RTY-001): they go on counting (LEA-001)."""
    event: EventNo = EventNo(0)
    """Then also the key of its row; 0: this very event."""


class ReplicaEnded(Event, frozen=True, tag=60):
    """A replica that nobody will complete any more; what becomes of its job follows."""

    id: TaskId
    act: JobAct
    reason: str
    ended_ms: int


def admitted(parent: TaskId, count: int, proof: str, before: dict[TaskId, Job] | None = None) -> list[ReplicaAdmitted]:
    """The replicas of a job; `before` are those of its last life."""
    made, known = list[ReplicaAdmitted](), before or {}
    for index, id_ in enumerate(replica_ids(parent, count)):
        was = known.get(id_)
        told = (was.proof, was.attempts, was.event) if was is not None else (proof,)
        made.append(ReplicaAdmitted(id_, parent, index, *told))
    return made


def apply_replica_admitted(state: Admitting, event: ReplicaAdmitted) -> None:
    parent = state.queue.jobs[event.parent]
    number = event.event or state.last_event
    replica = Job(
        number,
        event.id,
        parent.kind,
        parent.caller,
        parent.tier,
        parent.height,
        parent.tx_hash,
        parent.nonce,
        parent.request_hash,
        parent.size_bytes,
        parent.spec_digest,
        parent.max_fee,
        parent.units,
        parent.priority,
        parent.enqueue_ms,
        parent.expires_ms,
        parent.requirements,
        event.proof,
        attempts=event.attempts,
        expires_height=parent.expires_height,
        parent=parent.id,
        parent_event=parent.event,
    )
    state.queue.jobs[event.id] = state.touched["job"][number] = replica
    state.queue.count(replica, 1)
    state.queue.line.add(replica)
    if not event.event:
        state.claims.add(job_key(event.id), number, event)


def apply_replica_ended(state: Admitting, event: ReplicaEnded) -> None:
    """Its job remembers what failed last: if it ends for that, it says so."""
    replica = queue.end(state, event.id, event.act, event.reason, event.ended_ms)
    parent = state.queue.jobs[replica.parent]
    parent.reason = event.reason
    state.touched["job"][parent.event] = parent


def allot(state: Admitting, job: Job, paid: tuple[Payment, ...]) -> None:
    """ESC-001: who agreed gets a part of the reservation; the first one's stays with what goes back.

    A part is a reservation of its own under the replica's id: a reorg moves each like any other.
    """
    state.quorums[job.id].paid = paid
    for each in paid[1:]:
        if each.amount:
            money.split_hold(state, hold_of(job), _part(job, each), each.amount)


def settle(state: Admitting, job: Job) -> None:
    """Pay them all in the open block, and give the rest back; a reorg takes it back and does it again."""
    height, paid = state.open_height, state.quorums[job.id].paid
    first = paid[0]
    money.settle_for(state, hold_of(job), HoldAct.CHARGE, height, first.account, Amount(first.amount))
    for each in paid[1:]:
        if each.amount:
            money.settle_for(state, _part(job, each), HoldAct.CHARGE, height, each.account, Amount(each.amount))
    job.charged, job.payee, job.settled_height = sum(each.amount for each in paid), first.account, height
    state.touched["job"][job.event] = job
    for each in paid:
        replica = state.queue.jobs[replica_id(job.id, each.index)]
        replica.charged, replica.payee, replica.settled_height = each.amount, each.account, height
        state.touched["job"][replica.event] = replica


def _part(job: Job, payment: Payment) -> HoldId:
    return HoldId(replica_id(job.id, payment.index))
