"""Quotes (JOB-008): which providers could run a job now, before it is enqueued or while it waits."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.api.node_access import OWNERS, NodeAccess, Principal, RpcCall, RpcMethod, why_not_own
from holdfast.api.rpc.admission import checked_enqueue
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, TaskId
from holdfast.core.job.model import Job, JobState
from holdfast.core.queue.decide import why_not_run_at
from holdfast.engine.queries.jobs import GetLiveJob
from holdfast.engine.queries.providers import ContinueQuote, GetHypotheticalJob, StartQuote
from holdfast.engine.queries.quote import Quote

PROVIDERS_PER_TURN: Final = 500
"""How many providers are matched before other tasks get a turn."""
ANYBODY: Final = AccountId("anybody")


class QuoteParams(msgspec.Struct, frozen=True):
    """A job that waits, by its id, or the payload of one that could be enqueued."""

    task_id: TaskId = TaskId(b"")
    payload: dict[str, Any] | None = None
    max_fee: int = 1_000
    caller: AccountId | None = None
    """The account whose job it would be, where an operator asks on its behalf."""
    not_before_ms: int = 0
    """The time before which it would not be assigned (JOB-013)."""


async def _quote(access: NodeAccess, call: RpcCall, params: QuoteParams) -> Quote | Refused:
    now_ms = access.source.now_ms()
    if bool(params.task_id) == (params.payload is not None):
        return Refused("JOB-008", "params: task_id or payload: name one of them", name="InvalidParams")
    if params.task_id:
        job = await _queued_job(access, call.principal, params.task_id)
    else:
        job = await _hypothetical_job(access, call.principal, params, now_ms)
    if isinstance(job, Refused):
        return job
    start = await access.source.query_durable(StartQuote(job))
    quote, ids = start.quote, start.provider_ids
    for first in range(0, len(ids), PROVIDERS_PER_TURN):
        some = tuple(ids[first : first + PROVIDERS_PER_TURN])
        quote = await access.source.query_durable(ContinueQuote(quote, job, some, now_ms))
    return quote


async def _queued_job(access: NodeAccess, principal: Principal, id_: TaskId) -> Job | Refused:
    job = await access.source.query_durable(GetLiveJob(id_))
    if job is None:
        return Refused(
            "JOB-007", f"no live job {id_.hex()}", "`holdfast job show` says how it ended, if there was one", "NotFound"
        )
    if job.state is not JobState.QUEUED:
        return Refused("JOB-008", f"job {id_.hex()} is {job.state}", "a quote is for a job that waits")
    return why_not_own(principal, job.caller) or job


async def _hypothetical_job(
    access: NodeAccess, principal: Principal, params: QuoteParams, now_ms: int
) -> Job | Refused:
    caller = params.caller or principal.account or ANYBODY
    if refusal := why_not_own(principal, caller):
        return refusal
    terms = (caller, principal.tier, params.payload, params.max_fee, 0)
    policy = access.source.policy
    command = await checked_enqueue(access.input_checker, policy, *terms, not_before_ms=params.not_before_ms)
    if isinstance(command, Refused):
        return command
    if refusal := why_not_run_at(policy.admission, params.not_before_ms, now_ms):
        return refusal
    return await access.source.query_durable(GetHypotheticalJob(command, now_ms))


METHODS: Final[dict[str, RpcMethod]] = {
    "cap.getQuote": RpcMethod(
        "Which providers could run a job now, and why the others could not.", QuoteParams, Quote, _quote, OWNERS
    ),
}
