"""Jobs at the doors: enqueue for a receipt, look, list, cancel, raise the fee."""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from holdfast.core.act import Act
from holdfast.core.canon import H
from holdfast.core.canon import decode as decode_canonical
from holdfast.core.job.quorum import Vote
from holdfast.core.job.record import Job, JobState, earliest_read_height
from holdfast.core.key import Role
from holdfast.core.lease.record import Lease
from holdfast.core.policy import Policy
from holdfast.core.queue import acts
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.result.record import Result
from holdfast.core.state import State
from holdfast.core.values import AccountId, Amount, Digest, EventNo, Height, Kind, LeaseId, ProviderId, TaskId
from holdfast.doors.desk import REQUESTERS, Desk, Method, Visitor
from holdfast.doors.methods.money import Done, done
from holdfast.doors.pages import why_not_limit
from holdfast.engine import read
from holdfast.engine.outcome import Accepted

IDEMPOTENCY_TAG: Final = "holdfast.idempotency.v1"
IDEMPOTENCY_BYTES_MAX: Final = 255


class Enqueue(msgspec.Struct, frozen=True):
    """A job to take in. `payload` is what its task id is made of; a retry carries the same idempotency key."""

    payload: dict[str, Any]
    max_fee: int
    nonce: int | None = None
    """Tells two equal jobs apart; drawn at random where it is not given."""
    idempotency_key: str | None = None
    caller: AccountId | None = None
    """Whose job it is, where an operator asks on somebody's behalf."""


class Receipt(msgspec.Struct, frozen=True):
    """The queue holds the job now (JOB-006); everything in it can be computed again from the request."""

    task_id: TaskId
    kind: Kind
    caller: AccountId
    height: Height
    tx_hash: Digest
    nonce: int
    request_hash: Digest
    earliest_read_height: Height
    reserved: int
    enqueue_ms: int
    expires_ms: int
    expires_height: Height
    event: EventNo
    is_repeat: bool


class OneJob(msgspec.Struct, frozen=True):
    """Which job."""

    task_id: TaskId


class ManyJobs(msgspec.Struct, frozen=True):
    """A page of jobs in the order of their admission, filtered where asked; `cursor` is the last page's."""

    caller: str | None = None
    status: JobState | None = None
    kind: Kind | None = None
    from_height: int | None = None
    limit: int = 100
    cursor: int = 0
    include_replicas: bool = False
    """Replicas are shown with their job (LEA-009), and in lists only where they are asked for."""


class NewFee(msgspec.Struct, frozen=True):
    """What a job is worth now."""

    task_id: TaskId
    max_fee: int


class ReplicaShown(msgspec.Struct, frozen=True):
    """One of a job's replicas (LEA-009): where it is, who had it last, and what that one came to."""

    index: int
    task_id: TaskId
    state: JobState
    reason: str
    attempts: int
    charged: int | None
    payee: AccountId | None
    provider_id: ProviderId | None = None
    lease_id: LeaseId | None = None
    digest: Digest | None = None
    """What was handed in; it counts once the replica is COMPLETED."""
    size: int = 0


class JobShown(msgspec.Struct, frozen=True):
    """A job as it is now, with what was asked and every attempt at it."""

    job: Job
    payload: Any
    attempts: list[Lease]
    result: Result | None
    earliest_read_height: Height
    expires_height: Height
    replicas: list[ReplicaShown] = []
    """By index, where it has some; a replica itself names its job in `job.parent`."""


def receipt(job: Job | acts.JobAdmitted, event: EventNo, policy: Policy, *, is_repeat: bool) -> Receipt:
    height = job.height
    place = (height, job.tx_hash, job.nonce, job.request_hash, Height(height + 1), job.max_fee)
    ends = (job.enqueue_ms, job.expires_ms, expires_height(job, policy))
    return Receipt(job.id, job.kind, job.caller, *place, *ends, event, is_repeat)


def expires_height(job: Job | acts.JobAdmitted, policy: Policy) -> Height:
    """TTL-001: the last block for a proof; a job from before that was kept with it ends by time alone."""
    return job.expires_height or Height(job.height + policy.result.result_ttl_blocks)


async def _enqueue(desk: Desk, visitor: Visitor, asked: Enqueue) -> Receipt | Refused:
    caller = asked.caller or visitor.account
    if caller is None:
        return Refused("JOB-001", "params: caller: whose job is it?", name="InvalidParams")
    if visitor.role is Role.REQUESTER and caller != visitor.account:
        return Refused("SEC-001", f"this key is {visitor.account}'s, not {caller}'s", name="Forbidden")
    key = _idempotency(visitor, asked.idempotency_key)
    if isinstance(key, Refused):
        return key
    nonce = asked.nonce if asked.nonce is not None else secrets.randbits(63)
    policy = desk.source.policy
    command = prepare(policy, caller, visitor.tier, asked.payload, asked.max_fee, nonce, key)
    if isinstance(command, Refused):
        return command
    outcome = await desk.submit(_signed(visitor, "cap.enqueue", command))
    return outcome if isinstance(outcome, Refused) else await _receipt(desk, outcome, policy)


async def _receipt(desk: Desk, outcome: Accepted, policy: Policy) -> Receipt | Refused:
    if isinstance(outcome.fact, acts.JobAdmitted):
        return receipt(outcome.fact, outcome.event, policy, is_repeat=False)
    first = await read.admitted(desk.source, outcome.event) or await read.job_of(desk.source, outcome.event)
    if first is None:
        return Refused("JOB-002", f"event {outcome.event} admitted this job; its record is gone", name="NotFound")
    return receipt(first, outcome.event, policy, is_repeat=True)


def _idempotency(visitor: Visitor, key: str | None) -> bytes | Refused:
    """JOB-002: a client's key counts for its API key alone."""
    if key is None:
        return b""
    if not 1 <= len(key.encode()) <= IDEMPOTENCY_BYTES_MAX:
        says = f"params: idempotency_key: 1–{IDEMPOTENCY_BYTES_MAX} bytes"
        return Refused("JOB-002", says, name="InvalidParams")
    return H(IDEMPOTENCY_TAG, visitor.name.encode(), key.encode())[:16]


async def _job(desk: Desk, _: Visitor, asked: OneJob) -> JobShown | Refused:
    found = await read.job(desk.source, asked.task_id)
    if found is None:
        return Refused("JOB-007", f"no job {asked.task_id.hex()}", name="NotFound")
    payload = decode_canonical(await read.spec(desk.source, found))
    expires = expires_height(found, desk.source.policy)
    attempts = await read.attempts(desk.source, found.id)
    result = await read.result(desk.source, found.id)
    replicas = await _replicas(desk, found) if found.quorum_m else []
    return JobShown(found, payload, attempts, result, earliest_read_height(found), expires, replicas)


async def _replicas(desk: Desk, parent: Job) -> list[ReplicaShown]:
    """What was counted is in memory while it can change; what ended otherwise, in the rows of the leases."""
    votes = await desk.source.ask(lambda state: _votes(state, parent.id))
    shown = []
    for index, job in enumerate(await read.replicas(desk.source, parent)):
        told = (index, job.id, job.state, job.reason, job.attempts, job.charged, job.payee)
        if (vote := votes.get(index)) is not None:
            had = (vote.provider_id, vote.lease_id, vote.digest, vote.size)
            shown.append(ReplicaShown(*told, *had))
        elif leases := await read.attempts(desk.source, job.id):
            last = leases[-1]
            shown.append(ReplicaShown(*told, last.provider_id, last.id, last.submitted, last.submitted_size))
        else:
            shown.append(ReplicaShown(*told))
    return shown


def _votes(state: State, parent: TaskId) -> dict[int, Vote]:
    quorum = state.quorums.get(parent)
    return {vote.index: vote for vote in quorum.votes} if quorum is not None else {}


async def _jobs(desk: Desk, _: Visitor, asked: ManyJobs) -> read.Listing | Refused:
    if no := why_not_limit(asked.limit):
        return no
    columns = {"caller": asked.caller, "state": asked.status, "kind": asked.kind, "height>=": asked.from_height}
    match: dict[str, object] = {
        name: str(value) if isinstance(value, str) else value for name, value in columns.items() if value is not None
    }
    if not asked.include_replicas:
        match["parent"] = b""
    return await read.page(desk.source, "job", match, asked.cursor, asked.limit)


async def _cancel(desk: Desk, visitor: Visitor, asked: OneJob) -> Done | Refused:
    return done(await desk.submit(_signed(visitor, "cap.cancel", acts.Cancel(asked.task_id, visitor.account))))


async def _raise_fee(desk: Desk, visitor: Visitor, asked: NewFee) -> Done | Refused:
    command = acts.RaiseFee(asked.task_id, Amount(asked.max_fee), visitor.account)
    return done(await desk.submit(_signed(visitor, "cap.raiseFee", command)))


def _signed(visitor: Visitor, name: str, command: Any) -> Any:
    """A requester acts for itself; an operator acts on behalf of others and leaves its name (SEC-001)."""
    return command if visitor.role is Role.REQUESTER else Act(visitor.name, name, command)


METHODS: Final[dict[str, Method]] = {
    "cap.enqueue": Method(
        "Hand a job over; the receipt says that the queue holds it.",
        Enqueue,
        Receipt,
        _enqueue,
        REQUESTERS,
        is_write=True,
    ),
    "cap.cancel": Method("End a job and give its money back.", OneJob, Done, _cancel, REQUESTERS, is_write=True),
    "cap.raiseFee": Method("Offer more for a job.", NewFee, Done, _raise_fee, REQUESTERS, is_write=True),
    "cap.getJob": Method("One job as it is now.", OneJob, JobShown, _job),
    "cap.listJobs": Method("Jobs in the order of their admission.", ManyJobs, read.Listing, _jobs),
}
