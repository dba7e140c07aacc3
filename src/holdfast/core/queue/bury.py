"""Letting tombstones go (TTL-002): what ended long ago leaves the tables, in bounded lots; its ids stay for ever."""

from __future__ import annotations

import msgspec

from holdfast.core.event import Decided, Event
from holdfast.core.queue.books import Admitting
from holdfast.core.refusal import Refused
from holdfast.core.values import EventNo, TaskId


class Grave(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One job that ended, and the rows that tell of it."""

    event: EventNo
    id: TaskId
    leases: list[EventNo] = []


class Bury(msgspec.Struct, frozen=True, gc=False):
    """Let these tombstones go. Whoever submits this has read in the tables that their time is over."""

    graves: list[Grave]


class JobsBuried(Event, frozen=True, tag=58):
    """The rows of these jobs and of their leases are gone; what was claimed for them stays claimed."""

    graves: list[Grave]


def bury(state: Admitting, command: Bury, _now_ms: int) -> Decided | Refused:
    """TTL-002: never one that memory still has: it lives, or a reorg could still move its money."""
    graves = [grave for grave in command.graves if grave.id not in state.queue.jobs]
    if not graves:
        return Decided((), since=state.last_event)
    return Decided((JobsBuried(graves),))


def apply_buried(state: Admitting, event: JobsBuried) -> None:
    for grave in event.graves:
        for table in ("job", "spec", "failed_job"):
            state.touched[table][grave.event] = None
        for lease in grave.leases:
            state.touched["lease"][lease] = None
