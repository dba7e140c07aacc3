"""The order of waiting jobs (PRI-003): the stored priority decides, no job is ever scored again.

Jobs of one shape are one group with its own order: matching treats them alike. A group without an eligible provider
costs nothing, however many jobs are in it. The order over all groups is merged where it is needed. Delayed jobs
(retries, and jobs with a time of their own) are kept beside the groups until their time has come.

Fees differ from job to job, but matching only asks which prices a fee pays. So groups differ by the highest known price
that their jobs pay, not by the fee: a new price splits those groups whose jobs it tells apart (MAT-002).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Set
from heapq import merge
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from holdfast.core.base.values import AccountId, Kind, TaskId, Tier
from holdfast.core.index.due_index import DueIndex
from holdfast.core.index.sorted_keys import SortedKeys
from holdfast.core.job.model import Job, ceiling_of, ready_ms
from holdfast.core.queue.live.live_jobs import LiveJobs

AGE_OFFSET: Final = 8
"""In a sort key: where the priority ends and the age begins."""
ID_OFFSET: Final = 16
"""In a sort key: where the job's id begins."""
_PRIORITY_MAX: Final = 2**63
_pack_key = Struct(">QQ").pack


def sort_key_of(job: Job) -> bytes:
    """PRI-003 as bytes that sort in the order of the queue: higher priority first, then the older, then by id."""
    return _pack_key(_PRIORITY_MAX - job.priority, ready_ms(job)) + job.id


def task_id_of(sort_key: bytes) -> TaskId:
    return TaskId(sort_key[ID_OFFSET:])


STALE_PRICES_MAX: Final = 64
"""As many known prices more than twice those of the providers: then the old ones are forgotten."""
_ANY_CALLER: Final = AccountId("")
_NO_PARENT: Final = TaskId(b"")


class JobShape(NamedTuple):
    """What matching reads of a job, besides its order: the same for all jobs of a group."""

    kind: Kind
    requirements: bytes
    units: int
    caller: AccountId = _ANY_CALLER
    """The requester where policy limits requesters (MAT-005), else empty."""
    tier: Tier | None = None
    parent: TaskId = _NO_PARENT
    """Of replicas, their job: they are assigned to different providers (LEA-009)."""
    pays: int = -1
    """The highest of the known prices that its jobs pay; -1 where they pay none of them."""


class JobGroup(msgspec.Struct, gc=False):
    """Ready jobs of one shape, in the two orders in which they are assigned."""

    by_priority: SortedKeys = msgspec.field(default_factory=SortedKeys)
    by_age: SortedKeys = msgspec.field(default_factory=lambda: SortedKeys(AGE_OFFSET))
    """The same, the oldest first, for the starvation guard (MAT-005)."""
    ceiling_min: int = 0
    ceiling_max: int = 0
    """Between them are the highest prices that its jobs pay, those of jobs that left the group included."""


class ReadyQueue(msgspec.Struct):
    """Waiting jobs: ready ones by group and in order, delayed ones by the time at which they become ready."""

    groups: dict[JobShape, JobGroup] = {}
    delayed: DueIndex = msgspec.field(default_factory=DueIndex)
    version: int = 0
    """Grows with every job that becomes ready: a tick that assigned nothing need not run again before."""
    is_by_caller: bool = False
    """Whether groups differ by requester: only where policy limits requesters."""
    prices: list[int] = []
    """The prices that groups tell apart, in order: those of the providers, and some that were asked before."""
    waiting: dict[Kind, int] = {}
    """The number of waiting jobs by kind, ready or delayed."""

    def add_many(self, jobs: Iterable[Job]) -> None:
        self._add_ready(self._wait(jobs))

    def _wait(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Count all jobs and delay those that must wait; the others are ready. A million are not kept at a time."""
        waiting = self.waiting
        for job in jobs:
            if job.quorum_m:  # its replicas are here instead (LEA-009)
                continue
            waiting[job.kind] = waiting.get(job.kind, 0) + 1
            if job.not_before_ms:
                self.delayed.schedule(job.id, job.not_before_ms)
            else:
                yield job

    def remove_many(self, jobs: Iterable[Job]) -> None:
        waiting, removed = self.waiting, [job for job in jobs if not job.quorum_m]
        for job in removed:
            waiting[job.kind] -= 1
        missing: set[bytes] = set()
        for shape, (sort_keys, _) in self._by_shape(removed).items():
            group = self.groups.get(shape)
            if group is None:
                missing.update(sort_keys)
                continue
            not_ready = group.by_priority.remove_many(sort_keys)
            missing |= not_ready
            group.by_age.remove_many(sort_keys if not not_ready else set(sort_keys) - not_ready)
            if not group.by_priority.blocks:
                del self.groups[shape]
        if missing:
            self.delayed.remove_many([(job.id, job.not_before_ms) for job in removed if sort_key_of(job) in missing])

    def promote(self, jobs: Mapping[TaskId, Job], now_ms: int) -> None:
        """Move delayed jobs whose time has come into the ready order."""
        delayed = [jobs[TaskId(id_)] for id_ in self.delayed.due_until(now_ms)]
        due = [job for job in delayed if job.not_before_ms <= now_ms]
        self.delayed.remove_many([(job.id, job.not_before_ms) for job in due])
        self._add_ready(due)

    def regroup(self, jobs: LiveJobs, *, is_by_caller: bool, prices: Set[int]) -> None:
        """Group the same jobs anew, where policy begins or ceases to limit requesters, or a price is new."""
        known, is_other_way = set(self.prices), self.is_by_caller != is_by_caller
        if not is_other_way and prices <= known:
            return
        self.is_by_caller = is_by_caller
        if is_other_way or len(known) > 2 * len(prices) + STALE_PRICES_MAX:
            self.prices = sorted(prices)
            self._add_anew(jobs, list(self.groups))
            return
        self.prices = sorted(known | prices)
        for shape, group in list(self.groups.items()):
            pays = self._pays(group.ceiling_min)
            if pays != self._pays(group.ceiling_max):
                self._add_anew(jobs, [shape])
            elif pays != shape.pays:
                self.groups[shape._replace(pays=pays)] = self.groups.pop(shape)

    def _add_anew(self, jobs: LiveJobs, shapes: list[JobShape]) -> None:
        groups = [self.groups.pop(shape) for shape in shapes]
        keys = chain.from_iterable(group.by_priority for group in groups)
        self._add_ready(job for key in keys if (job := jobs.peek(task_id_of(key))) is not None)

    def _pays(self, ceiling: int) -> int:
        at = bisect_right(self.prices, ceiling)
        return self.prices[at - 1] if at else -1

    def shape_of(self, job: Job) -> JobShape:
        """Equal to the `JobShape` of its group; a bare tuple, because a named one takes three times as long to make."""
        pays = self._pays(ceiling_of(job))
        if self.is_by_caller:
            return (job.kind, job.requirements, job.units, job.caller, job.tier, job.parent, pays)  # type: ignore[return-value]
        return (job.kind, job.requirements, job.units, _ANY_CALLER, None, job.parent, pays)  # type: ignore[return-value]

    def in_order(self) -> Iterator[TaskId]:
        """PRI-003: all ready jobs."""
        for sort_key in merge(*(group.by_priority for group in self.groups.values())):
            yield task_id_of(sort_key)

    def rank(self, sort_key: bytes) -> int:
        """How many ready jobs come before this sort key."""
        return sum(group.by_priority.rank(sort_key) for group in self.groups.values())

    def oldest_ms(self) -> dict[Kind, int]:
        """The admission time of the oldest ready job of each kind."""
        oldest: dict[Kind, int] = {}
        for shape, group in self.groups.items():
            at_ms = int.from_bytes(group.by_age.blocks[0][0][AGE_OFFSET:ID_OFFSET], "big")
            oldest[shape.kind] = min(at_ms, oldest.get(shape.kind, at_ms))
        return oldest

    def _add_ready(self, jobs: Iterable[Job]) -> None:
        for shape, (sort_keys, ceilings) in self._by_shape(jobs).items():
            low, high = min(ceilings), max(ceilings)
            group = self.groups.get(shape)
            if group is None:
                group = self.groups[JobShape(*shape)] = JobGroup(ceiling_min=low, ceiling_max=high)
            group.ceiling_min, group.ceiling_max = min(group.ceiling_min, low), max(group.ceiling_max, high)
            group.by_age.add_many(sort_keys.copy())
            group.by_priority.add_many(sort_keys)
            self.version += len(sort_keys)

    def _by_shape(self, jobs: Iterable[Job]) -> dict[JobShape, tuple[list[bytes], list[int]]]:
        """The sort keys of these jobs and the prices that they pay at most, in their order, by shape."""
        by_shape: dict[JobShape, tuple[list[bytes], list[int]]] = {}
        shape_of, packed = self.shape_of, _pack_key
        for job in jobs:  # a start does this a million times, so `sort_key_of` is written out
            shape = shape_of(job)
            if (found := by_shape.get(shape)) is None:
                found = by_shape[shape] = ([], [])
            sort_keys, ceilings = found
            sort_keys.append(packed(_PRIORITY_MAX - job.priority, job.run_at_ms or job.enqueue_ms) + job.id)
            ceilings.append(ceiling_of(job))
        return by_shape


def rebuild_ready_queue(jobs: Iterable[Job]) -> ReadyQueue:
    """PRI-003: the queue of these waiting jobs, built at once, as after a policy change of priorities."""
    queue = ReadyQueue()
    queue.add_many(jobs)
    return queue
