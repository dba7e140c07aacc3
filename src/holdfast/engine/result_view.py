"""Results as callers see them (RES-002, RES-003): what memory knows at one moment, and rows for what left it."""

from __future__ import annotations

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.height_bound import why_not_height
from holdfast.core.base.values import ZERO_DIGEST, AccountId, Digest, EventNo, Height, Kind, ProviderId, TaskId
from holdfast.core.job.model import earliest_read_height
from holdfast.core.result.messages import Consume, StoredFacts
from holdfast.core.result.model import Result, ResultStatus
from holdfast.core.result.readability import ENDED_WITHOUT_RESULT, why_not_readable
from holdfast.engine import queries
from holdfast.engine.queries.chain import GetResultMoment, ResultMoment


class ResultView(Result, array_like=True, gc=False):
    """A result as callers see it: the stored record, its status as of now, and when it was used."""

    readable_from: Height = Height(0)
    """0 where that is not known yet."""
    consumed_height: Height | None = None
    consumed_event: EventNo | None = None


async def load_moment(source: queries.ReadSource, id_: TaskId) -> ResultMoment:
    """Memory is asked once, so that no block is sealed between two answers; rows have what left memory."""
    moment = await source.query_durable(GetResultMoment(id_))
    if moment.result is not None:
        return moment
    result = await queries.stored_result(source, id_)
    if result is None:
        return msgspec.structs.replace(moment, job=moment.job or await queries.job(source, id_))
    job = moment.job or (None if result.caller else await queries.job(source, id_))
    used = moment.consumption or await queries.consumption(source, result)
    return msgspec.structs.replace(moment, job=job, result=result, consumption=used)


async def readable_result(
    source: queries.ReadSource, id_: TaskId, height: Height | None = None
) -> ResultView | Refused:
    """The result, where a call at the open height, or at the given one, may read it."""
    moment = await load_moment(source, id_)
    if refusal := why_not_height(moment.open_height, height):
        return refusal
    return why_not_readable(moment.job, moment.result, moment.open_height) or _view(moment)


async def view_result(source: queries.ReadSource, id_: TaskId) -> ResultView | Refused:
    """RES-003: the same for display: a job without a readable result is PENDING, or says how it ended."""
    moment = await load_moment(source, id_)
    refusal = why_not_readable(moment.job, moment.result, moment.open_height)
    if refusal is None or (moment.job is None and moment.result is None):
        return refusal or _view(moment)
    return _pending_view(moment)


def why_not_chain(chain_id: int, named: int | None) -> Refused | None:
    """RES-007: a request that names a chain must name this one."""
    if named is None or named == chain_id:
        return None
    return Refused("RES-007", f"this is chain {chain_id}, not {named}", "ask a node of that chain", "ChainMismatch")


async def build_consume(source: queries.ReadSource, id_: TaskId, caller: AccountId, tx_hash: Digest) -> Consume:
    """RES-005: the command, with the facts of the stored result, which memory may not hold any more."""
    moment = await load_moment(source, id_)
    job, result = moment.job, moment.result
    if result is None:
        return Consume(id_, caller, tx_hash)
    facts = StoredFacts(
        result.event,
        result.caller or (job.caller if job is not None else AccountId("")),
        Kind(result.kind or (job.kind if job is not None else Kind.AI)),
        result.earliest or (earliest_read_height(job) if job is not None else Height(0)),
        result.height_resolved,
    )
    return Consume(id_, caller, tx_hash, facts)


def _view(moment: ResultMoment) -> ResultView:
    job, result = moment.job, moment.result
    assert result is not None
    fields = msgspec.structs.asdict(result)
    if job is not None and not result.caller:
        fields |= {"caller": job.caller, "kind": job.kind.value, "earliest": earliest_read_height(job)}
    view = ResultView(**fields)
    view.readable_from = max(Height(view.height_resolved + 1), view.earliest)
    if moment.consumption is not None and moment.consumption.height:
        view.status = ResultStatus.CONSUMED
        view.consumed_height, view.consumed_event = moment.consumption.height, moment.consumption.event
    return view


def _pending_view(moment: ResultMoment) -> ResultView:
    """A task without a readable result: what is not known is empty."""
    job, result = moment.job, moment.result
    ended = ENDED_WITHOUT_RESULT.get(job.state) if job is not None else None
    caller, kind = (job.caller, job.kind.value) if job is not None else (AccountId(""), "")
    if result is not None and result.caller:
        caller, kind = result.caller, result.kind
    return ResultView(
        event=EventNo(0),
        task_id=job.id if job is not None else result.task_id if result is not None else TaskId(b""),
        status=ResultStatus.PENDING if ended is None else ended[1],
        height_resolved=Height(0),
        proof_nullifier=ZERO_DIGEST,
        result_digest=ZERO_DIGEST,
        result_size=0,
        mime_type="",
        da_commitment=None,
        expires_at=Height(0),
        leaf_index=-1,
        provider_id=ProviderId(b""),
        payee=AccountId(""),
        charged=0,
        method=job.proof if job is not None else "",
        reasons=job.reason if job is not None else "",
        caller=caller,
        kind=kind,
        earliest=earliest_read_height(job) if job is not None else Height(0),
    )
