"""The order of waiting jobs (PRI-003): the stored key decides, no job is ever scored again.

Jobs that a provider cannot tell apart are one group with an order of its own. A group that nobody fits costs nothing,
however many jobs are in it, and the order of all is merged from the groups where somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from holdfast.core.agenda import Agenda
from holdfast.core.job.record import Job
from holdfast.core.ranks import Ranks, ranked
from holdfast.core.values import AccountId, Kind, TaskId, Tier

AGE_AT: Final = 8
"""Where, in a place, the key is over and the age begins."""
ID_AT: Final = 16
"""And where the job's id begins."""
_HIGHEST: Final = 2**63
_packed = Struct(">QQ").pack


def place_of(job: Job) -> bytes:
    """PRI-003 as bytes whose order is that of the queue: the higher key first, then the older, then by id."""
    return _packed(_HIGHEST - job.priority, job.enqueue_ms) + job.id


def job_at(place: bytes) -> TaskId:
    return TaskId(place[ID_AT:])


_ANYBODY: Final = AccountId("")
_NOBODYS: Final = TaskId(b"")


class Ask(NamedTuple):
    """All of a job that matching looks at, besides its place: what jobs of one group have in common."""

    kind: Kind
    requirements: bytes
    units: int
    caller: AccountId = _ANYBODY
    """Only where it matters who asks (MAT-005); empty where it does not."""
    tier: Tier | None = None
    parent: TaskId = _NOBODYS
    """Of replicas, whose they are: they go to different providers (LEA-009)."""


class Group(msgspec.Struct, gc=False):
    """Jobs that ask for the same and are ready, in the two orders in which they are taken."""

    places: Ranks = msgspec.field(default_factory=Ranks)
    ages: Ranks = msgspec.field(default_factory=lambda: Ranks(AGE_AT))
    """The same, the oldest first, for the starvation guard (MAT-005)."""


class Line(msgspec.Struct):
    """Jobs that wait: those that are ready by group and in order, the others by when they will be."""

    groups: dict[Ask, Group] = {}
    later: Agenda = msgspec.field(default_factory=Agenda)
    version: int = 0
    """Grows with every job that becomes ready: whoever found nothing to do need not look again before."""
    is_by_caller: bool = False
    """Whether who asks tells groups apart: only where policy counts what each requester was given."""
    waiting: dict[Kind, int] = {}
    """How many wait, ready or not."""

    def add(self, job: Job) -> None:
        if job.quorum_m:  # its replicas stand here (LEA-009)
            return
        self.waiting[job.kind] = self.waiting.get(job.kind, 0) + 1
        if job.not_before_ms:
            self.later.put(job.id, job.not_before_ms)
        else:
            self._stand(job)

    def remove(self, job: Job) -> None:
        if job.quorum_m:
            return
        self.waiting[job.kind] -= 1
        ask, place = self.ask_of(job), place_of(job)
        group = self.groups.get(ask)
        if group is None or not group.places.remove(place):
            self.later.remove(job.id, job.not_before_ms)
            return
        group.ages.remove(place)
        if not group.places.blocks:
            del self.groups[ask]

    def promote(self, jobs: dict[TaskId, Job], now_ms: int) -> None:
        """Let those whose pause is over stand in line again."""
        for id_ in list(self.later.upto(now_ms)):
            job = jobs[TaskId(id_)]
            if job.not_before_ms <= now_ms:
                self.later.remove(id_, job.not_before_ms)
                self._stand(job)

    def regroup(self, jobs: dict[TaskId, Job], *, is_by_caller: bool) -> None:
        """The same jobs in other groups, where policy has begun or ceased to count what each requester was given."""
        if self.is_by_caller == is_by_caller:
            return
        ready = [jobs[id_] for id_ in self.in_order()]
        self.is_by_caller, self.version = is_by_caller, self.version + 1
        self.groups = _grouped(self, ready)

    def ask_of(self, job: Job) -> Ask:
        """Equal to the `Ask` of its group; as a bare tuple, because a named one takes three times as long to make."""
        if self.is_by_caller:
            return (job.kind, job.requirements, job.units, job.caller, job.tier, job.parent)  # type: ignore[return-value]
        return (job.kind, job.requirements, job.units, _ANYBODY, None, job.parent)  # type: ignore[return-value]

    def in_order(self) -> Iterator[TaskId]:
        """PRI-003: all that are ready."""
        for place in merge(*(group.places for group in self.groups.values())):
            yield job_at(place)

    def before(self, place: bytes) -> int:
        """How many of those that are ready stand before this place."""
        return sum(group.places.before(place) for group in self.groups.values())

    def oldest_ms(self) -> dict[Kind, int]:
        """When the oldest job of each kind that is ready was admitted."""
        found: dict[Kind, int] = {}
        for ask, group in self.groups.items():
            at_ms = int.from_bytes(group.ages.blocks[0][0][AGE_AT:ID_AT], "big")
            found[ask.kind] = min(at_ms, found.get(ask.kind, at_ms))
        return found

    def _stand(self, job: Job) -> None:
        ask, place = self.ask_of(job), place_of(job)
        group = self.groups.get(ask)
        if group is None:
            group = self.groups[Ask(*ask)] = Group()
        group.places.add(place)
        group.ages.add(place)
        self.version += 1


def made(jobs: Iterable[Job]) -> Line:
    """PRI-003: the line of these waiting jobs, made at once: at a start, and when a policy gave them all new keys."""
    line, ready = Line(), list[Job]()
    for job in jobs:
        if job.quorum_m:
            continue
        line.waiting[job.kind] = line.waiting.get(job.kind, 0) + 1
        if job.not_before_ms:
            line.later.put(job.id, job.not_before_ms)
        else:
            ready.append(job)
    line.groups = _grouped(line, ready)
    line.version = len(ready)
    return line


def _grouped(line: Line, jobs: Iterable[Job]) -> dict[Ask, Group]:
    places: dict[Ask, list[bytes]] = {}
    ask_of, packed = line.ask_of, _packed
    for job in jobs:  # a start does this a million times, so `place_of` is written out
        ask = ask_of(job)
        some = places.get(ask)
        if some is None:
            some = places[Ask(*ask)] = []
        some.append(packed(_HIGHEST - job.priority, job.enqueue_ms) + job.id)
    return {ask: Group(ages=ranked(some.copy(), AGE_AT), places=ranked(some)) for ask, some in places.items()}
