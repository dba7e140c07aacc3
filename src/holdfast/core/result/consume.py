"""Using a result (RES-005): once, by its job's caller, when it is readable; a reorg takes the mark back.

A consumption is a record of its own: the row of the result, which may have left memory long ago, is not written again.
"""

from __future__ import annotations

from holdfast.core import claim
from holdfast.core.chain import decide as chain
from holdfast.core.chain.acts import RollBack
from holdfast.core.chain.blocks import Tx
from holdfast.core.event import Decided
from holdfast.core.job.record import earliest_read_height
from holdfast.core.refusal import Refused
from holdfast.core.result.acts import (
    Consume,
    ConsumptionDropped,
    Kept,
    ResultConsumed,
    claimed,
    consumption_key,
)
from holdfast.core.result.read import not_sealed, why_not_readable, why_not_yet
from holdfast.core.result.record import Consumption, Resolving
from holdfast.core.values import Height, TaskId

NOT_MARKED = Height(0)
"""The height of a consumption whose block was taken back."""

# ------------------------------------------------------------------------------------------------ deciding


def consume(state: Resolving, command: Consume, _now_ms: int) -> Decided | Refused:
    """RES-005: the same transaction again is answered as the first; any other one comes too late."""
    if (first := _consumed_before(state, command)) is not None:
        return first
    found = _readable(state, command)
    if isinstance(found, Refused):
        return found
    if not found.caller:
        says = f"nobody knows any more whose result {command.task_id.hex()} was"
        return Refused("RES-007", says, "its record was let go, and history with it", "NotFound")
    if command.caller != found.caller:
        says = f"result {command.task_id.hex()} is for {found.caller}, not for {command.caller}"
        return Refused("RES-005", says, name="Forbidden")
    told = (found.kind, found.event, found.earliest, state.open_height)
    return Decided((ResultConsumed(command.task_id, command.caller, command.tx_hash, *told),))


def _consumed_before(state: Resolving, command: Consume) -> Decided | Refused | None:
    live = state.consumptions.get(command.task_id)
    if live is not None:
        if (live.caller, live.tx_hash) == (command.caller, command.tx_hash):
            return Decided((), since=live.event)
        return _already(command.task_id, f"in block {live.height}")
    old = claim.why_not_first(state.claims, consumption_key(command.task_id), claimed(command))
    if not isinstance(old, Refused):
        return old
    return _already(command.task_id, f"at event {state.claims.event_of(consumption_key(command.task_id))}")


def _already(task_id: TaskId, when: str) -> Refused:
    return Refused("RES-005", f"result {task_id.hex()} was consumed {when}", "it is used once", "AlreadyConsumed")


def _readable(state: Resolving, command: Consume) -> Kept | Refused:
    """What is known of a result that can be read now: from memory, or from the rows that the caller brought."""
    job = state.queue.jobs.get(command.task_id)
    if job is None:
        if command.kept is None:
            return Refused("RES-007", f"no result of {command.task_id.hex()}", name="NotFound")
        if command.kept.height >= state.open_height:
            return not_sealed(command.kept.height)
        return why_not_yet(command.kept.earliest, state.open_height) or command.kept
    if job.caller != command.caller:  # before anything is said about somebody else's job
        return Kept(job.event, job.caller, job.kind, NOT_MARKED)
    result = state.results.get(command.task_id)
    no = why_not_readable(job, result, state.open_height)
    if no is not None or result is None:
        return no or Refused("RES-007", f"no result of {command.task_id.hex()}", name="NotFound")
    return Kept(result.event, job.caller, job.kind, earliest_read_height(job))


def roll_back(state: Resolving, command: RollBack, now_ms: int) -> Decided | Refused:
    """CHN-003, RES-005: what cannot count in the block where it is included again is told with the rollback."""
    decided = chain.roll_back(state, command, now_ms)
    if isinstance(decided, Refused) or not decided.events:
        return decided
    to = command.height
    dropped = [
        ConsumptionDropped(each.task_id, each.caller, each.event)
        for each in state.consumptions.values()
        if each.height > to and not _counts_above(state, each, to)
    ]
    return Decided((*decided.events, *dropped))


def _counts_above(state: Resolving, each: Consumption, head: Height) -> bool:
    """Whether a consumption would be good in the block above this head."""
    result = state.results.get(each.task_id)
    return each.earliest <= head + 1 and (result is None or 0 < result.height_resolved <= head)


# ------------------------------------------------------------------------------------------------ applying


def apply_consumed(state: Resolving, event: ResultConsumed) -> None:
    names = (event.result, state.last_event, event.task_id, event.caller, event.kind, event.tx_hash)
    mark = Consumption(*names, event.earliest, event.height)
    state.consumptions[event.task_id] = state.touched["consumption"][event.result] = mark
    state.counts["consumed", event.kind.value] = state.counts.get(("consumed", event.kind.value), 0) + 1


def apply_dropped(state: Resolving, event: ConsumptionDropped) -> None:
    mark = state.consumptions.pop(event.task_id)
    mark.height = NOT_MARKED
    state.touched["consumption"][mark.result] = mark


def unmark(state: Resolving, tx: Tx, height: Height) -> None:
    """RES-006: the block of this consumption is gone."""
    mark = state.consumptions.get(TaskId(tx.subject))
    if mark is not None and (mark.event, mark.height) == (tx.number, height):
        mark.height = NOT_MARKED
        state.touched["consumption"][mark.result] = mark


def consume_again(state: Resolving, tx: Tx) -> None:
    """CHN-004: included again it counts only where its result can be read by now (RES-002)."""
    mark = state.consumptions.get(TaskId(tx.subject))
    if mark is None or mark.event != tx.number:
        return
    if _counts_above(state, mark, Height(state.open_height - 1)):
        mark.height = state.open_height
        state.touched["consumption"][mark.result] = mark


def let_go(state: Resolving, tx: Tx, height: Height) -> None:
    """What is final is a claim for ever (ENG-005) and a row; memory need not have it."""
    mark = state.consumptions.get(TaskId(tx.subject))
    if mark is None or (mark.event, mark.height) != (tx.number, height):
        return
    told = ResultConsumed(mark.task_id, mark.caller, mark.tx_hash)
    state.claims.add(consumption_key(mark.task_id), mark.event, claimed(told))
    del state.consumptions[mark.task_id]
