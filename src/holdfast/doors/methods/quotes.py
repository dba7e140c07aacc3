"""Quotes at the doors (JOB-008): who could run a job now, before it is handed over or while it waits."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.core.job.record import Job, JobState
from holdfast.core.match.quote import Quote, as_if, quote
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import AccountId, TaskId
from holdfast.doors.desk import OWNERS, Desk, Method, Visitor, why_not_own
from holdfast.engine import read
from holdfast.engine.loop import Engine

TOGETHER: Final = 500
"""How many providers are asked before others get a turn."""
ANYBODY: Final = AccountId("anybody")


class QuoteFor(msgspec.Struct, frozen=True):
    """A job that waits, by its id, or one that could be handed over."""

    task_id: TaskId = TaskId(b"")
    payload: dict[str, Any] | None = None
    max_fee: int = 1_000
    caller: AccountId | None = None
    """Whose job it would be, where an operator asks on somebody's behalf."""


async def _quote(desk: Desk, visitor: Visitor, asked: QuoteFor) -> Quote | Refused:
    now_ms = _now_ms(desk.source)
    if bool(asked.task_id) == (asked.payload is not None):
        return Refused("JOB-008", "params: task_id or payload: name one of them", name="InvalidParams")
    if asked.task_id:
        found = await _waiting(desk, visitor, asked.task_id)
    else:
        found = await _imagined(desk, visitor, asked, now_ms)
    if isinstance(found, Refused):
        return found
    job = found
    told, everybody = await desk.source.ask(lambda state: (quote(state, job), list(state.providers.values())))
    for at in range(0, len(everybody), TOGETHER):
        some = everybody[at : at + TOGETHER]
        await desk.source.ask(lambda state, some=some: told.ask(state, some, job, now_ms))  # type: ignore[misc]
    return told


def _now_ms(source: read.Source) -> int:
    """An owner knows the time; a follower how late it was when the last batch was written."""
    return source.now_ms() if isinstance(source, Engine) else source.standing().tip.time_ms


async def _waiting(desk: Desk, visitor: Visitor, id_: TaskId) -> Job | Refused:
    def find(state: State) -> Job | None:
        job = state.queue.jobs.get(id_)
        return msgspec.structs.replace(job) if job is not None else None

    job = await desk.source.ask(find)
    if job is None:
        return Refused("JOB-007", f"no job {id_.hex()} lives", "it ended long ago or never was", "NotFound")
    if job.state is not JobState.QUEUED:
        return Refused("JOB-008", f"job {id_.hex()} is {job.state}", "a quote is for a job that waits")
    return why_not_own(visitor, job.caller) or job


async def _imagined(desk: Desk, visitor: Visitor, asked: QuoteFor, now_ms: int) -> Job | Refused:
    caller = asked.caller or visitor.account or ANYBODY
    if no := why_not_own(visitor, caller):
        return no
    command = prepare(desk.source.policy, caller, visitor.tier, asked.payload, asked.max_fee, 0)
    if isinstance(command, Refused):
        return command
    enqueue: Enqueue = command
    return await desk.source.ask(lambda state: as_if(state, enqueue, now_ms))


METHODS: Final[dict[str, Method]] = {
    "cap.quote": Method("Who could run this now, and if nobody, why not.", QuoteFor, Quote, _quote, OWNERS),
}
