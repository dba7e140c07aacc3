"""The queue at the doors, for operators: kinds that are paused, jobs that failed too often and are put back."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from holdfast.core.act import Act
from holdfast.core.key import Role
from holdfast.core.queue.pauses import Paused, PauseKind, ResumeKind
from holdfast.core.queue.requeue import Requeue
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import EventNo, Kind, TaskId
from holdfast.doors.desk import OPERATORS, OWNERS, Desk, Method, Visitor
from holdfast.doors.methods.jobs import OneJob
from holdfast.doors.methods.money import Done, act, done
from holdfast.doors.pages import why_not_limit
from holdfast.engine import read


class Nothing(msgspec.Struct, frozen=True):
    """No parameters."""


class Pause(msgspec.Struct, frozen=True):
    """Which kind is given to nobody from now on, and why."""

    kind: Kind
    reason: str = ""


class Resume(msgspec.Struct, frozen=True):
    """Which kind is given out again."""

    kind: Kind


class QueueShown(msgspec.Struct, frozen=True):
    """The queue as it is now."""

    depth: int
    """Jobs that wait or are worked on."""
    leases: int
    by_kind: dict[str, int]
    """Leases that live, by kind."""
    paused: dict[str, Paused]
    waiting: dict[str, int] = {}
    """Jobs that wait, by kind,"""
    oldest_ms: dict[str, int] = {}
    """when the oldest of those that could be given now was admitted,"""
    retrying: int = 0
    """and how many wait for a retry."""
    as_of: EventNo = EventNo(0)
    time_ms: int = 0


class ManyDeadLetters(msgspec.Struct, frozen=True):
    """A page of jobs that failed too often, in the order of their admission; `cursor` is the last page's."""

    caller: str | None = None
    kind: Kind | None = None
    limit: int = 100
    cursor: int = 0


async def _show(desk: Desk, _: Visitor, __: Nothing) -> QueueShown:
    def now(state: State) -> QueueShown:
        leases = state.leases.by_job
        kinds = Counter(state.queue.jobs[TaskId(id_)].kind.value for id_ in leases)
        line = state.queue.line
        waiting = {kind.value: line.waiting.get(kind, 0) for kind in Kind}
        oldest = {kind.value: at_ms for kind, at_ms in line.oldest_ms().items()}
        retrying = sum(map(len, line.later.buckets.values()))
        told = (waiting, oldest, retrying, state.last_event, desk.source.standing().tip.time_ms)
        return QueueShown(state.queue.depth, len(leases), dict(kinds), dict(state.paused), *told)

    return await desk.source.ask(now)


async def _dead_letters(desk: Desk, visitor: Visitor, asked: ManyDeadLetters) -> read.Listing | Refused:
    """RTY-001: operators and auditors see all, a requester its own."""
    if no := why_not_limit(asked.limit):
        return no
    caller = visitor.account if visitor.role is Role.REQUESTER else asked.caller
    told = {"caller": caller, "kind": None if asked.kind is None else asked.kind.value}
    match = {name: value for name, value in told.items() if value is not None}
    return await read.page(desk.source, "failed_job", match, asked.cursor, asked.limit)


async def _requeue(desk: Desk, visitor: Visitor, asked: OneJob) -> Done | Refused:
    """RTY-001: with the job as history has it, where memory has let it go."""
    found = await read.job(desk.source, asked.task_id)
    replicas = await read.replicas(desk.source, found) if found is not None else []
    command = Requeue(asked.task_id, found, tuple(replicas))
    return done(await desk.submit(Act(visitor.name, "job.requeue", command)))


METHODS: Final[dict[str, Method]] = {
    "queue.show": Method("How deep the queue is, what is leased, which kinds are paused.", Nothing, QueueShown, _show),
    "queue.pause": Method(
        "Give no job of this kind to anybody; leases that live go on.",
        Pause,
        Done,
        act("queue.pause", lambda asked: PauseKind(asked.kind, asked.reason)),
        OPERATORS,
        is_write=True,
    ),
    "queue.resume": Method(
        "Give jobs of this kind out again.",
        Resume,
        Done,
        act("queue.resume", lambda asked: ResumeKind(asked.kind)),
        OPERATORS,
        is_write=True,
    ),
    "job.deadLetters": Method("Jobs that failed too often.", ManyDeadLetters, read.Listing, _dead_letters, OWNERS),
    "job.requeue": Method("Put a job back that failed too often.", OneJob, Done, _requeue, OPERATORS, is_write=True),
}
