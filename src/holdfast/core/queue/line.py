"""The order of waiting jobs (PRI-003): the stored key decides, no job is ever scored again."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

import msgspec

from holdfast.core.agenda import Agenda
from holdfast.core.job.record import Job
from holdfast.core.values import TaskId

Place = tuple[int, int, bytes]


def place_of(job: Job) -> Place:
    """PRI-003: the higher key first, then the older, then by id."""
    return -job.priority, job.enqueue_ms, job.id


class Line(msgspec.Struct):
    """Jobs that wait: those that are ready in order, the others by when they will be. Made again from the records."""

    ready: list[Place] = []
    later: Agenda = msgspec.field(default_factory=Agenda)

    def add(self, job: Job) -> None:
        if job.not_before_ms:
            self.later.put(job.id, job.not_before_ms)
        else:
            insort(self.ready, place_of(job))

    def remove(self, job: Job) -> None:
        place = place_of(job)
        at = bisect_left(self.ready, place)
        if at < len(self.ready) and self.ready[at] == place:
            del self.ready[at]
        else:
            self.later.remove(job.id, job.not_before_ms)

    def promote(self, jobs: dict[TaskId, Job], now_ms: int) -> None:
        """Let those whose pause is over stand in line again."""
        for id_ in list(self.later.upto(now_ms)):
            job = jobs[TaskId(id_)]
            if job.not_before_ms <= now_ms:
                self.later.remove(id_, job.not_before_ms)
                insort(self.ready, place_of(job))

    def in_order(self) -> Iterator[TaskId]:
        for _, _, id_ in self.ready:
            yield TaskId(id_)
