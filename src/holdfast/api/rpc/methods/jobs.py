"""Methods about jobs: enqueue for a receipt, get, list, cancel, raise the fee."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from holdfast.api.node_access import HOST_CALL, REQUESTERS, NodeAccess, Principal, RpcCall, RpcMethod, why_not_own
from holdfast.api.receipts import Receipt, receipt_of
from holdfast.api.rpc.admission import checked_enqueue
from holdfast.api.rpc.job_inputs import with_inline_input
from holdfast.api.rpc.paging import filter_of, why_not_limit
from holdfast.api.rpc.privileged import CommandResult, command_result, submit_for, submit_grouped_for
from holdfast.api.visibility import (
    PublicJob,
    PublicResult,
    View,
    show_job,
    show_leases,
    show_result,
    view_of,
    why_not_list_caller,
)
from holdfast.core.base.canonical import H
from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.height_bound import TX_HASH_BYTES, AtHeight
from holdfast.core.base.values import (
    AccountId,
    Amount,
    Digest,
    EventNo,
    Height,
    KeyId,
    Kind,
    LeaseId,
    ProviderId,
    TaskId,
)
from holdfast.core.job.model import Job, JobState, earliest_read_height
from holdfast.core.key.model import Role
from holdfast.core.lease.model import Lease
from holdfast.core.queue import messages
from holdfast.core.result.model import Result
from holdfast.engine import queries
from holdfast.engine.queries.chain import GetChainHead
from holdfast.engine.queries.jobs import GetQuorumVotes
from holdfast.engine.result_view import readable_result, why_not_chain

IDEMPOTENCY_TAG: Final = "holdfast.idempotency.v1"
IDEMPOTENCY_BYTES_MAX: Final = 255
NONCE_BITS: Final = 53
"""Of a nonce that is drawn: programs in JavaScript hold such numbers exactly."""


class JobStatus(StrEnum):
    """What jobs can be listed by: their states, and PENDING for those that have not ended."""

    QUEUED = "QUEUED"
    ASSIGNED = "ASSIGNED"
    COMPLETED = "COMPLETED"
    EXPIRED = "EXPIRED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    PENDING = "PENDING"


PENDING_STATES: Final = (JobStatus.QUEUED, JobStatus.ASSIGNED)


class EnqueueParams(msgspec.Struct, frozen=True):
    """A job to enqueue. Its task id is made of `payload`; a retry carries the same idempotency key."""

    payload: dict[str, Any]
    max_fee: int
    nonce: int | None = None
    """Tells two equal jobs apart; drawn at random where it is not given."""
    idempotency_key: str | None = None
    input: str | None = None
    """JOB-003: bytes of its input as base64, at most 64 KiB; `payload.input` may state their media type."""
    caller: AccountId | None = None
    """The account whose job it is, where an operator enqueues on its behalf."""
    chain_id: int | None = None
    height: Height | None = None
    tx_hash: Digest = Digest(b"")
    """JOB-004: the transaction that enqueues it and the open block, from a key that may execute contracts."""
    not_before_ms: int = 0
    """JOB-013: it is not assigned before this time, and its time to live counts from then; 0 or a past time: now."""


class JobParams(msgspec.Struct, frozen=True):
    """Which job."""

    task_id: TaskId


class ListJobsParams(msgspec.Struct, frozen=True):
    """A page of jobs in the order of their admission, filtered where given; `cursor` is the last page's."""

    caller: str | None = None
    status: JobStatus | None = None
    kind: Kind | None = None
    from_height: int | None = None
    limit: int = 100
    cursor: int = 0
    include_replicas: bool = False
    """Replicas are shown with their job (LEA-009); in lists they are only shown on demand."""
    newest_first: bool = False
    """From the newest one down."""


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
    """A job as it is now, with its payload and all its leases. Of a private job others see the first four fields."""

    job: Job | PublicJob
    result: Result | PublicResult | None
    earliest_read_height: Height
    expires_height: Height
    payload: Any = None
    attempts: list[Lease] = []
    replicas: list[ReplicaView] = []
    """By index, where the job has replicas; a replica names its job in `job.parent`."""


async def _enqueue(access: NodeAccess, call: RpcCall, params: EnqueueParams) -> Receipt | Refused:
    caller = params.caller or call.principal.account
    if caller is None:
        return Refused("JOB-001", "params: caller: missing", name="InvalidParams")
    if refusal := why_not_own(call.principal, caller) or _why_not_bound(access, call.principal, params):
        return refusal
    idempotency = _idempotency_digest(call.principal, params.idempotency_key)
    if isinstance(idempotency, Refused):
        return idempotency
    with_input = with_inline_input(params.payload, params.input)
    if isinstance(with_input, Refused):
        return with_input
    payload, raw_input = with_input
    nonce = 0 if params.tx_hash else secrets.randbits(NONCE_BITS)
    command = await checked_enqueue(
        access.input_checker,
        access.source.policy,
        caller,
        call.principal.tier,
        payload,
        params.max_fee,
        nonce=params.nonce if params.nonce is not None else nonce,
        idempotency=idempotency,
        inputs=access.inputs,
        raw_input=raw_input,
        not_before_ms=params.not_before_ms,
    )
    if isinstance(command, Refused):
        return command
    command = msgspec.structs.replace(command, key=KeyId(call.principal.name))
    if params.height is not None:  # JOB-004: in the block that the call names
        bound = AtHeight(params.height, msgspec.structs.replace(command, tx_hash=params.tx_hash))
        outcome = await submit_for(access, call, bound)
    else:
        outcome = await submit_grouped_for(access, call, command)
    return outcome if isinstance(outcome, Refused) else await receipt_of(access.source, outcome)


def _why_not_bound(access: NodeAccess, principal: Principal, params: EnqueueParams) -> Refused | None:
    """JOB-004: who executes contracts vouches for chain, height and transaction; its key says that it may."""
    if params.chain_id is None and params.height is None and not params.tx_hash:
        return None
    if HOST_CALL not in principal.scopes and (principal.role is not Role.OPERATOR or principal.scopes):
        hint = f"a key with the scope {HOST_CALL} may"
        return Refused("JOB-004", "this key may not say in which transaction a job is", hint, "Forbidden")
    is_whole = None not in (params.chain_id, params.height) and len(params.tx_hash) == TX_HASH_BYTES
    if not is_whole or params.nonce is not None:
        message = f"params: chain_id, height and tx_hash of {TX_HASH_BYTES} bytes together, without nonce"
        return Refused("JOB-004", message, name="InvalidParams")
    return why_not_chain(access.source.policy.chain_id, params.chain_id)


def _idempotency_digest(principal: Principal, key: str | None) -> bytes | Refused:
    """JOB-002: an idempotency key is scoped to the API key that sends it."""
    if key is None:
        return b""
    if not 1 <= len(key.encode()) <= IDEMPOTENCY_BYTES_MAX:
        message = f"params: idempotency_key: 1–{IDEMPOTENCY_BYTES_MAX} bytes"
        return Refused("JOB-002", message, name="InvalidParams")
    return H(IDEMPOTENCY_TAG, principal.name.encode(), key.encode())[:16]


async def _get_job(access: NodeAccess, call: RpcCall, params: JobParams) -> JobView | Refused:
    job = await queries.job(access.source, params.task_id)
    if job is None:
        return Refused("JOB-007", f"no job {params.task_id.hex()}", name="NotFound")
    view, principal = view_of(call.principal, job), call.principal
    known = JobView(
        job=show_job(principal, job),
        result=await _result_of(access, principal, job),
        earliest_read_height=earliest_read_height(job),
        expires_height=job.expires_height,
    )
    if view is View.CHAIN:
        return known
    return msgspec.structs.replace(
        known,
        payload=decode_canonical(await queries.spec(access.source, job)),
        attempts=show_leases(view, await queries.attempts(access.source, job.id)),
        replicas=await _replicas(access, job, view) if job.quorum_m else [],
    )


async def _result_of(access: NodeAccess, principal: Principal, job: Job) -> Result | PublicResult | None:
    """Its caller sees a result as soon as its proof is accepted, others once it is in a block."""
    if view_of(principal, job) is View.WHOLE:
        return await queries.result(access.source, job.id)
    result = await readable_result(access.source, job.id)
    return None if isinstance(result, Refused) else show_result(principal, result)


async def _replicas(access: NodeAccess, parent: Job, view: View) -> list[ReplicaView]:
    """Votes are in memory while they can change; of a replica without a vote, its last lease is in the tables."""
    replicas = [each async for each in _all_replicas(access, parent)]
    return replicas if view is View.WHOLE else [msgspec.structs.replace(each, digest=None, size=0) for each in replicas]


async def _all_replicas(access: NodeAccess, parent: Job) -> AsyncIterator[ReplicaView]:
    votes = await access.source.query_durable(GetQuorumVotes(parent.id))
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
        yield view


async def _list_jobs(access: NodeAccess, call: RpcCall, params: ListJobsParams) -> queries.Page | Refused:
    if refusal := why_not_limit(params.limit) or why_not_list_caller(call.principal, params.caller):
        return refusal
    match = filter_of(
        {
            "caller": params.caller,
            "kind": params.kind,
            "height>=": params.from_height,
            "parent": None if params.include_replicas else b"",
        }
    )
    states = PENDING_STATES if params.status is JobStatus.PENDING else (params.status,)
    cursor, below = params.cursor, await _before_height(access, params.from_height or 0)
    if not params.newest_first:
        cursor = max(cursor, below)
    elif below:
        match["event>="] = below + 1
    pages = [
        await queries.page(
            access.source,
            "job",
            match | filter_of({"state": state}),
            cursor,
            params.limit,
            is_newest_first=params.newest_first,
        )
        for state in states
    ]
    page = queries.merge_pages(pages, params.limit, is_newest_first=params.newest_first)
    return msgspec.structs.replace(page, rows=[show_job(call.principal, job) for job in page.rows])


async def _before_height(access: NodeAccess, height: int) -> EventNo:
    """An event before every job of this height and above: a list from a height reads no earlier rows (SEC-002).

    The height was open for the first time before a block was first sealed at it, orphaned ones included.
    """
    if height <= 1:
        return EventNo(0)
    sealed = (await queries.page(access.source, "block", {"height": height}, 0, 1)).rows
    head = (await access.source.query_durable(GetChainHead())).block
    block = sealed[0] if sealed else await queries.block(access.source, Height(height))
    return EventNo(block.first_event - 1 if block is not None else head.last_event)


async def _cancel(access: NodeAccess, call: RpcCall, params: JobParams) -> CommandResult | Refused:
    command = messages.CancelJob(params.task_id, call.principal.account)
    return command_result(await submit_for(access, call, command))


async def _raise_fee(access: NodeAccess, call: RpcCall, params: RaiseFeeParams) -> CommandResult | Refused:
    key = KeyId(call.principal.name)
    command = messages.RaiseFee(params.task_id, Amount(params.max_fee), call.principal.account, key)
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
