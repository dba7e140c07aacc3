"""Methods about jobs: enqueue for a receipt, get, list, cancel, raise the fee."""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from holdfast.api.node_access import REQUESTERS, NodeAccess, Principal, RpcCall, RpcMethod, why_not_own
from holdfast.api.receipts import Receipt, receipt_of
from holdfast.api.rpc.paging import filter_of, why_not_limit
from holdfast.api.rpc.privileged import CommandResult, command_result, submit_for, submit_grouped_for
from holdfast.core.base.canonical import H
from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Amount, Digest, Height, Kind, LeaseId, ProviderId, TaskId
from holdfast.core.job.model import Job, JobState, earliest_read_height
from holdfast.core.lease.model import Lease
from holdfast.core.queue import messages
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.result.model import Result
from holdfast.engine import queries
from holdfast.engine.queries.jobs import GetQuorumVotes

IDEMPOTENCY_TAG: Final = "holdfast.idempotency.v1"
IDEMPOTENCY_BYTES_MAX: Final = 255


class EnqueueParams(msgspec.Struct, frozen=True):
    """A job to enqueue. Its task id is made of `payload`; a retry carries the same idempotency key."""

    payload: dict[str, Any]
    max_fee: int
    nonce: int | None = None
    """Tells two equal jobs apart; drawn at random where it is not given."""
    idempotency_key: str | None = None
    caller: AccountId | None = None
    """The account whose job it is, where an operator enqueues on its behalf."""


class JobParams(msgspec.Struct, frozen=True):
    """Which job."""

    task_id: TaskId


class ListJobsParams(msgspec.Struct, frozen=True):
    """A page of jobs in the order of their admission, filtered where given; `cursor` is the last page's."""

    caller: str | None = None
    status: JobState | None = None
    kind: Kind | None = None
    from_height: int | None = None
    limit: int = 100
    cursor: int = 0
    include_replicas: bool = False
    """Replicas are shown with their job (LEA-009); in lists they are only shown on demand."""


class RaiseFeeParams(msgspec.Struct, frozen=True):
    """The new fee of a job."""

    task_id: TaskId
    max_fee: int


class ReplicaView(msgspec.Struct, frozen=True):
    """One of a job's replicas (LEA-009): its state, its last lease, and the output that was submitted."""

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
    """Of the output that was submitted; it counts once the replica is COMPLETED."""
    size: int = 0


class JobView(msgspec.Struct, frozen=True):
    """A job as it is now, with its payload and all its leases."""

    job: Job
    payload: Any
    attempts: list[Lease]
    result: Result | None
    earliest_read_height: Height
    expires_height: Height
    replicas: list[ReplicaView] = []
    """By index, where the job has replicas; a replica names its job in `job.parent`."""


async def _enqueue(access: NodeAccess, call: RpcCall, params: EnqueueParams) -> Receipt | Refused:
    caller = params.caller or call.principal.account
    if caller is None:
        return Refused("JOB-001", "params: caller: missing", name="InvalidParams")
    if refusal := why_not_own(call.principal, caller):
        return refusal
    idempotency = _idempotency_digest(call.principal, params.idempotency_key)
    if isinstance(idempotency, Refused):
        return idempotency
    command = build_enqueue(
        access.source.policy,
        caller,
        call.principal.tier,
        params.payload,
        params.max_fee,
        nonce=params.nonce if params.nonce is not None else secrets.randbits(63),
        idempotency=idempotency,
    )
    if isinstance(command, Refused):
        return command
    outcome = await submit_grouped_for(access, call, command)
    return outcome if isinstance(outcome, Refused) else await receipt_of(access.source, outcome)


def _idempotency_digest(principal: Principal, key: str | None) -> bytes | Refused:
    """JOB-002: an idempotency key is scoped to the API key that sends it."""
    if key is None:
        return b""
    if not 1 <= len(key.encode()) <= IDEMPOTENCY_BYTES_MAX:
        message = f"params: idempotency_key: 1–{IDEMPOTENCY_BYTES_MAX} bytes"
        return Refused("JOB-002", message, name="InvalidParams")
    return H(IDEMPOTENCY_TAG, principal.name.encode(), key.encode())[:16]


async def _get_job(access: NodeAccess, _: RpcCall, params: JobParams) -> JobView | Refused:
    job = await queries.job(access.source, params.task_id)
    if job is None:
        return Refused("JOB-007", f"no job {params.task_id.hex()}", name="NotFound")
    return JobView(
        job=job,
        payload=decode_canonical(await queries.spec(access.source, job)),
        attempts=await queries.attempts(access.source, job.id),
        result=await queries.result(access.source, job.id),
        earliest_read_height=earliest_read_height(job),
        expires_height=job.expires_height,
        replicas=await _replicas(access, job) if job.quorum_m else [],
    )


async def _replicas(access: NodeAccess, parent: Job) -> list[ReplicaView]:
    """Votes are in memory while they can change; of a replica without a vote, its last lease is in the tables."""
    votes = await access.source.query_durable(GetQuorumVotes(parent.id))
    views = []
    for index, job in enumerate(await queries.replicas(access.source, parent)):
        view = ReplicaView(
            index=index,
            task_id=job.id,
            state=job.state,
            reason=job.reason,
            attempts=job.attempts,
            charged=job.charged,
            payee=job.payee,
        )
        if (vote := votes.get(index)) is not None:
            view = msgspec.structs.replace(
                view, provider_id=vote.provider_id, lease_id=vote.lease_id, digest=vote.digest, size=vote.size
            )
        elif leases := await queries.attempts(access.source, job.id):
            last = leases[-1]
            view = msgspec.structs.replace(
                view,
                provider_id=last.provider_id,
                lease_id=last.id,
                digest=last.submitted,
                size=last.submitted_size,
            )
        views.append(view)
    return views


async def _list_jobs(access: NodeAccess, _: RpcCall, params: ListJobsParams) -> queries.Page | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    match = filter_of(
        {
            "caller": params.caller,
            "state": params.status,
            "kind": params.kind,
            "height>=": params.from_height,
            "parent": None if params.include_replicas else b"",
        }
    )
    return await queries.page(access.source, "job", match, params.cursor, params.limit)


async def _cancel(access: NodeAccess, call: RpcCall, params: JobParams) -> CommandResult | Refused:
    command = messages.CancelJob(params.task_id, call.principal.account)
    return command_result(await submit_for(access, call, command))


async def _raise_fee(access: NodeAccess, call: RpcCall, params: RaiseFeeParams) -> CommandResult | Refused:
    command = messages.RaiseFee(params.task_id, Amount(params.max_fee), call.principal.account)
    return command_result(await submit_for(access, call, command))


METHODS: Final[dict[str, RpcMethod]] = {
    "cap.enqueue": RpcMethod(
        "Enqueue a job; the receipt confirms that the queue holds it.",
        EnqueueParams,
        Receipt,
        _enqueue,
        REQUESTERS,
        is_write=True,
    ),
    "cap.cancel": RpcMethod(
        "Cancel a job and refund its reservation.", JobParams, CommandResult, _cancel, REQUESTERS, is_write=True
    ),
    "cap.raiseFee": RpcMethod(
        "Raise the fee of a job.", RaiseFeeParams, CommandResult, _raise_fee, REQUESTERS, is_write=True
    ),
    "cap.getJob": RpcMethod("One job as it is now.", JobParams, JobView, _get_job),
    "cap.listJobs": RpcMethod("Jobs in the order of their admission.", ListJobsParams, queries.Page, _list_jobs),
}
