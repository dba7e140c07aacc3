"""Results as they are shown (RES-002, RES-003): one moment of memory, rows for what left it, the view over both."""

from __future__ import annotations

import msgspec

from holdfast.core.call import why_not_height
from holdfast.core.job.record import Job, earliest_read_height
from holdfast.core.refusal import Refused
from holdfast.core.result.acts import Consume, Kept
from holdfast.core.result.read import ENDED, why_not_readable
from holdfast.core.result.record import Consumption, Result, ResultStatus
from holdfast.core.state import State
from holdfast.core.values import ZERO_DIGEST, AccountId, Digest, EventNo, Height, Kind, ProviderId, TaskId
from holdfast.engine import read


class ResultView(Result, array_like=True, gc=False):
    """A result as anybody may see it: the stored record, its status with the views, and who used it when."""

    readable_from: Height = Height(0)
    """0 where that is not known yet."""
    consumed_height: Height | None = None
    consumed_event: EventNo | None = None


class Moment(msgspec.Struct, frozen=True, gc=False):
    """What is known of a task, all as of one moment."""

    open_height: Height
    job: Job | None
    result: Result | None
    mark: Consumption | None


async def moment(source: read.Source, id_: TaskId) -> Moment:
    """Memory is asked once, so that no block comes between two answers; rows speak for what has left it."""
    now = await source.ask(lambda state: _in_memory(state, id_))
    if now.result is not None:
        return now
    found = await read.old_result(source, id_)
    if found is None:
        return msgspec.structs.replace(now, job=now.job or await read.job(source, id_))
    job = now.job or (None if found.caller else await read.job(source, id_))
    return msgspec.structs.replace(now, job=job, result=found, mark=now.mark or await read.consumption(source, found))


def _in_memory(state: State, id_: TaskId) -> Moment:
    found = (state.queue.jobs.get(id_), state.results.get(id_), state.consumptions.get(id_))
    job, result, mark = (msgspec.structs.replace(each) if each is not None else None for each in found)
    return Moment(state.open_height, job, result, mark)  # type: ignore[arg-type]


async def readable(source: read.Source, id_: TaskId, height: Height | None = None) -> ResultView | Refused:
    """The result, if a call may read it that runs now, or at the height it names."""
    now = await moment(source, id_)
    if no := why_not_height(now.open_height, height):
        return no
    return why_not_readable(now.job, now.result, now.open_height) or _view(now)


async def shown(source: read.Source, id_: TaskId) -> ResultView | Refused:
    """RES-003: the same for whoever only looks: a job without a readable result is PENDING or EXPIRED."""
    now = await moment(source, id_)
    no = why_not_readable(now.job, now.result, now.open_height)
    if no is None or (now.job is None and now.result is None):
        return no or _view(now)
    return _pending(now)


def why_not_chain(chain_id: int, named: int | None) -> Refused | None:
    """RES-007: only who names a chain can be wrong about it."""
    if named is None or named == chain_id:
        return None
    return Refused("RES-007", f"this is chain {chain_id}, not {named}", "ask a node of that chain", "ChainMismatch")


async def consuming(source: read.Source, id_: TaskId, caller: AccountId, tx_hash: Digest) -> Consume:
    """RES-005: the command, with what the rows say where memory has let the result go."""
    now = await moment(source, id_)
    found = now.result
    if found is None:
        return Consume(id_, caller, tx_hash)
    whose = found.caller or (now.job.caller if now.job is not None else AccountId(""))
    kind = found.kind or (now.job.kind if now.job is not None else Kind.AI)
    return Consume(
        id_, caller, tx_hash, Kept(found.event, whose, Kind(kind), _earliest(now, found), found.height_resolved)
    )


def _earliest(now: Moment, found: Result) -> Height:
    promised = earliest_read_height(now.job) if now.job is not None else Height(0)
    return found.earliest or promised


def _view(now: Moment) -> ResultView:
    assert now.result is not None
    told = msgspec.structs.asdict(now.result)
    if now.job is not None and not now.result.caller:
        told |= {"caller": now.job.caller, "kind": now.job.kind.value, "earliest": earliest_read_height(now.job)}
    view = ResultView(**told)
    view.readable_from = max(Height(view.height_resolved + 1), view.earliest)
    if now.mark is not None and now.mark.height:
        view.status = ResultStatus.CONSUMED
        view.consumed_height, view.consumed_event = now.mark.height, now.mark.event
    return view


def _pending(now: Moment) -> ResultView:
    """No record exists for these: what is not known is empty."""
    job, result = now.job, now.result
    is_over = job is not None and job.state in ENDED
    status = ResultStatus.EXPIRED if is_over else ResultStatus.PENDING
    caller, kind = (job.caller, job.kind.value) if job is not None else (AccountId(""), "")
    if result is not None and result.caller:
        caller, kind = result.caller, result.kind
    earliest = earliest_read_height(job) if job is not None else Height(0)
    nothing = (ZERO_DIGEST, ZERO_DIGEST, 0, "", None, Height(0), -1, ProviderId(b""), AccountId(""), 0)
    task_id = job.id if job is not None else result.task_id if result is not None else TaskId(b"")
    proof, reason = (job.proof, job.reason) if job is not None else ("", "")
    return ResultView(EventNo(0), task_id, status, Height(0), *nothing, proof, reason, caller, kind, earliest)
