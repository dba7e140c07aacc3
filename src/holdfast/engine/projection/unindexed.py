"""A state that nothing is decided against: its records, without the counters and indexes that only decisions read.

The projector writes records. Keeping the order of the waiting jobs, and when jobs and leases are due, takes a fifth of
its fold. A snapshot stores that order: for it the order is rebuilt from the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.core.index.due_index import DueIndex
from holdfast.core.job.model import Job, JobState
from holdfast.core.queue.model import Queue
from holdfast.core.queue.ready_queue import ReadyQueue
from holdfast.core.state import State


class UnindexedQueue(Queue):
    """Live jobs, neither counted nor scheduled."""

    def count(self, jobs: Sequence[Job], by: int) -> None:
        pass

    def schedule_expiry(self, jobs: Iterable[Job]) -> None:
        pass

    def unschedule_expiry(self, jobs: Sequence[Job]) -> None:
        pass


class _NoOrder(ReadyQueue):
    """Takes waiting jobs and keeps none; what it tells groups apart by stays known."""

    def add_many(self, jobs: Iterable[Job]) -> None:
        pass

    def remove_many(self, jobs: Iterable[Job]) -> None:
        pass


class _NoDueIndex(DueIndex):
    """Takes due times and keeps none."""

    def schedule_many(self, due: Iterable[tuple[bytes, int]]) -> None:
        pass

    def remove_many(self, due: Iterable[tuple[bytes, int]]) -> None:
        pass

    def move_many(self, moves: Iterable[tuple[bytes, int, int]]) -> None:
        pass


def drop_indexes(state: State) -> None:
    """From here on the state is only folded: whatever follows from its records is not kept."""
    before = state.queue.ready_queue
    state.queue = UnindexedQueue(
        jobs=state.queue.jobs,
        ready_queue=_NoOrder(is_by_caller=before.is_by_caller, prices=before.prices),
        expiry_times=_NoDueIndex(),
        expiry_heights=_NoDueIndex(bucket_width=1),
    )
    state.leases.due_index = _NoDueIndex()


@contextmanager
def with_order(state: State) -> Iterator[None]:
    """The order of the waiting jobs for as long as a snapshot is made."""
    queue, none = state.queue, state.queue.ready_queue
    queue.ready_queue = ReadyQueue(is_by_caller=none.is_by_caller, prices=none.prices)
    queue.ready_queue.add_many(job for job in queue.jobs.values() if job.state is JobState.QUEUED)
    try:
        yield
    finally:
        queue.ready_queue = none
