"""Consuming a result (RES-005): once, by its job's caller, when it is readable; a reorg can undo it.

A consumption is a separate record: the row of the result, which may have left memory long ago, is not written again.
"""

from __future__ import annotations

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.records import record_from
from holdfast.core.base.values import TaskId
from holdfast.core.index import unique_ids
from holdfast.core.job.model import earliest_read_height
from holdfast.core.result.messages import Consume, ResultConsumed, StoredFacts, consumption_claim, consumption_key
from holdfast.core.result.model import HasResults
from holdfast.core.result.readability import NOT_IN_BLOCK, refuse_unsealed, why_not_readable, why_not_yet_readable


def consume(state: HasResults, command: Consume, _now_ms: int) -> Decided | Refused:
    """RES-005: the same transaction again is a repeat; any other one is refused."""
    if (first := _answer_repeat(state, command)) is not None:
        return first
    facts = _find_readable(state, command)
    if isinstance(facts, Refused):
        return facts
    if not facts.caller:
        message = f"the caller of result {command.task_id.hex()} is not known any more"
        return Refused("RES-007", message, "its record and its history were deleted", "NotFound")
    if command.caller != facts.caller:
        message = f"result {command.task_id.hex()} is not for {command.caller}"
        return Refused("RES-005", message, name="Forbidden")
    about = {"kind": facts.kind, "result": facts.event, "earliest": facts.earliest}
    consumed = record_from(ResultConsumed, command, height=state.open_height, **about)
    return Decided((consumed,))


def _answer_repeat(state: HasResults, command: Consume) -> Decided | Refused | None:
    live = state.consumptions.get(command.task_id)
    if live is not None:
        if (live.caller, live.tx_hash) == (command.caller, command.tx_hash):
            return Decided((), repeat_of=live.event)
        block = f"block {live.height}" if live.height else "a block that was rolled back"
        return _refuse_consumed(command.task_id, f"in {block}")
    earlier = unique_ids.check_unique(state.claims, consumption_key(command.task_id), consumption_claim(command))
    if not isinstance(earlier, Refused):
        return earlier
    return _refuse_consumed(command.task_id, f"at event {state.claims.event_of(consumption_key(command.task_id))}")


def _refuse_consumed(task_id: TaskId, when: str) -> Refused:
    return Refused(
        "RES-005", f"result {task_id.hex()} was consumed {when}", "a result is consumed once", "AlreadyConsumed"
    )


def _find_readable(state: HasResults, command: Consume) -> StoredFacts | Refused:
    """The facts of a readable result: from memory, or from the rows in the command."""
    job = state.queue.jobs.get(command.task_id)
    if job is None:
        if command.stored is None:
            return Refused("RES-007", f"no result of {command.task_id.hex()}", name="NotFound")
        if command.stored.height >= state.open_height:
            return refuse_unsealed(command.stored.height)
        return why_not_yet_readable(command.stored.earliest, state.open_height) or command.stored
    if job.caller != command.caller:  # the caller of another's job learns nothing more about it
        return StoredFacts(job.event, job.caller, job.kind, NOT_IN_BLOCK)
    result = state.results.get(command.task_id)
    refusal = why_not_readable(job, result, state.open_height)
    if refusal is not None or result is None:
        return refusal or Refused("RES-007", f"no result of {command.task_id.hex()}", name="NotFound")
    return StoredFacts(result.event, job.caller, job.kind, earliest_read_height(job))
