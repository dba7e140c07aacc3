"""What is kept of jobs in memory: all that live or whose money a reorg could still move, and keys for retries."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import msgspec

from holdfast.core.agenda import Agenda
from holdfast.core.claim import Claims
from holdfast.core.escrow.books import Ledger
from holdfast.core.job.quorum import Quorum
from holdfast.core.job.record import LIVE, Job, JobState, ends_ms, hold_of
from holdfast.core.policy import Policy
from holdfast.core.queue.line import Line, made
from holdfast.core.touch import Touched
from holdfast.core.values import AccountId, EventNo, Height, TaskId


class Remembered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an idempotency key was used for, and until when it counts (JOB-002)."""

    event: EventNo
    asked: bytes
    """Digest of the request without its nonce."""
    until_ms: int


class Queue(msgspec.Struct):
    """Jobs by id. The counters are kept, never counted."""

    jobs: dict[TaskId, Job] = {}
    in_flight: dict[AccountId, int] = {}
    """Jobs that live, by who asked for them; however many replicas one has, it is one."""
    depth: int = 0
    """Work that lives: jobs, and of those that have replicas (LEA-009) each of them instead."""
    remembered: dict[bytes, Remembered] = {}
    """By idempotency key, oldest first: all are valid equally long."""
    line: Line = msgspec.field(default_factory=Line)
    agenda: Agenda = msgspec.field(default_factory=Agenda)
    """When live jobs end by themselves (TTL-001)."""
    heights: Agenda = msgspec.field(default_factory=lambda: Agenda(width=1))
    """After which block they do."""

    def count(self, job: Job, by: int) -> None:
        if not job.quorum_m:
            self.depth += by
        if job.parent:
            return
        left = self.in_flight.get(job.caller, 0) + by
        if left:
            self.in_flight[job.caller] = left
        else:
            del self.in_flight[job.caller]

    def note_ends(self, job: Job) -> None:
        """Whichever of its ends comes first, it is noticed. A replica ends with its job."""
        if job.parent:
            return
        self.agenda.put(job.id, ends_ms(job))
        if job.expires_height:
            self.heights.put(job.id, job.expires_height)

    def drop_ends(self, job: Job) -> None:
        self.agenda.remove(job.id, ends_ms(job))
        self.heights.remove(job.id, job.expires_height)


def counted(jobs: dict[TaskId, Job]) -> Queue:
    """A queue with its counters and its order made anew from the jobs."""
    queue, live = Queue(jobs), [job for job in jobs.values() if job.state in LIVE]
    queue.depth = sum(not job.quorum_m for job in live)
    whole = [job for job in live if not job.parent]
    queue.in_flight = dict(Counter(job.caller for job in whole))
    queue.agenda.fill((job.id, ends_ms(job)) for job in whole)
    queue.heights.fill((job.id, job.expires_height) for job in whole if job.expires_height)
    queue.line = made(job for job in live if job.state is JobState.QUEUED)
    return queue


class Admitting(Protocol):
    """What this station needs of the state."""

    policy: Policy
    ledger: Ledger
    queue: Queue
    claims: Claims
    touched: Touched
    last_event: EventNo
    requeued: dict[TaskId, list[EventNo]]
    """When jobs were put back whose earlier refunds a reorg could still move (RTY-001)."""
    quorums: dict[TaskId, Quorum]
    """How far jobs with replicas have come (LEA-009)."""

    @property
    def open_height(self) -> Height: ...


def broken_laws(queue: Queue, ledger: Ledger) -> list[str]:
    """What always holds of the queue: empty when all is well."""
    again = counted(queue.jobs)
    live = [job for job in queue.jobs.values() if job.state in LIVE]
    checks = {
        "counters equal what is counted": (again.depth, again.in_flight) == (queue.depth, queue.in_flight),
        "every queued job stands in line once": _standing(queue) == sorted(_queued(queue)),
        "a job that lives has its fee reserved": all(_is_reserved(job, ledger) for job in live if not job.parent),
        "a job is known by its own id": all(id_ == job.id for id_, job in queue.jobs.items()),
        "only ended jobs have an end": all((j.ended_ms is None) == (j.state in LIVE) for j in queue.jobs.values()),
    }
    return [law for law, holds in checks.items() if not holds]


def _standing(queue: Queue) -> list[bytes]:
    later = [id_ for bucket in queue.line.later.buckets.values() for id_ in bucket]
    return sorted([*queue.line.in_order(), *later])


def _queued(queue: Queue) -> list[bytes]:
    return [job.id for job in queue.jobs.values() if job.state is JobState.QUEUED and not job.quorum_m]


def _is_reserved(job: Job, ledger: Ledger) -> bool:
    hold = ledger.holds.get(hold_of(job))
    return hold is not None and (hold.amount, hold.status, hold.owner) == (job.max_fee, "HELD", job.caller)
