"""Purging tombstones (TTL-002): jobs that ended long ago leave the tables, in steps; their ids stay for ever."""

from __future__ import annotations

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Decided, Event
from holdfast.core.base.values import EventNo, TaskId
from holdfast.core.queue.model import HasQueue


class PurgedJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One ended job, and the keys of its rows."""

    event: EventNo
    id: TaskId
    leases: list[EventNo] = []


class PurgeJobs(Command, frozen=True):
    """Delete these tombstones. The caller has read in the tables that their time is over."""

    jobs: list[PurgedJob]


class JobsPurged(Event, frozen=True, tag=58):
    """The rows of these jobs and of their leases are deleted; their ids stay claimed."""

    jobs: list[PurgedJob]


def purge(state: HasQueue, command: PurgeJobs, _now_ms: int) -> Decided | Refused:
    """TTL-002: a job that is still in memory is kept: it lives, or a reorg could still move its money."""
    tombstones = [tombstone for tombstone in command.jobs if tombstone.id not in state.queue.jobs]
    if not tombstones:
        return Decided((), repeat_of=state.last_event)
    return Decided((JobsPurged(tombstones),))


def apply_jobs_purged(state: HasQueue, event: JobsPurged) -> None:
    for tombstone in event.jobs:
        for table in ("job", "spec", "failed_job"):
            state.touched[table][tombstone.event] = None
        for lease in tombstone.leases:
            state.touched["lease"][lease] = None
