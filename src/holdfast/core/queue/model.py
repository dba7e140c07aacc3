"""The queue as the state keeps it: live jobs, and ended jobs that have not left memory yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

import msgspec

from holdfast.core.base.values import AccountId, Digest, EventNo, Height, KeyId, ProviderId, TaskId, add_count, tally
from holdfast.core.escrow.model import Ledger
from holdfast.core.index.due_index import DueIndex
from holdfast.core.index.touch import Touched
from holdfast.core.index.unique_ids import Claims
from holdfast.core.job.model import LIVE_STATES, Job, JobState, expires_at_ms
from holdfast.core.job.quorum import Quorum
from holdfast.core.key.model import Key
from holdfast.core.policy import Policy
from holdfast.core.queue.live.live_jobs import LiveJobs
from holdfast.core.queue.ready_queue import ReadyQueue

JOBS_AT_ONCE: Final = 4_096
"""Of packed jobs no more records are made at a time."""


class Queue(msgspec.Struct):
    """Jobs by id, with counters and indexes that follow every change."""

    jobs: LiveJobs = msgspec.field(default_factory=LiveJobs)
    in_flight: dict[AccountId, int] = {}
    """The number of live jobs by requester; a job with replicas counts as one."""
    depth: int = 0
    """The number of live jobs; of a job with replicas (LEA-009) each replica counts instead."""
    ready_queue: ReadyQueue = msgspec.field(default_factory=ReadyQueue)
    expiry_times: DueIndex = msgspec.field(default_factory=DueIndex)
    """When live jobs expire (TTL-001)."""
    expiry_heights: DueIndex = msgspec.field(default_factory=lambda: DueIndex(bucket_width=1))
    """After which block live jobs expire."""
    input_uses: dict[Digest, int] = {}
    """How many jobs in memory name an input, by its digest."""

    def count_input(self, job: Job, by: int) -> None:
        """JOB-003: an input is kept while a job in memory names it."""
        if job.input_digest:
            add_count(self.input_uses, job.input_digest, by)

    def count(self, jobs: Sequence[Job], by: int) -> None:
        self.depth += by * sum([not job.quorum_m for job in jobs])
        for caller, count in tally([job.caller for job in jobs if not job.parent]).items():
            add_count(self.in_flight, caller, by * count)

    def schedule_expiry(self, jobs: Iterable[Job]) -> None:
        """Schedule by time and by height: the first one ends the job. A replica ends with its job."""
        requested = [job for job in jobs if not job.parent]
        self.expiry_times.schedule_many([(job.id, expires_at_ms(job)) for job in requested])
        self.expiry_heights.schedule_many([(job.id, job.expires_height) for job in requested if job.expires_height])

    def index(self, jobs: Sequence[Job]) -> None:
        """Count and schedule jobs as their states require."""
        live = [job for job in jobs if job.state in LIVE_STATES]
        self.count(live, 1)
        self.schedule_expiry(live)
        for job in jobs:
            self.count_input(job, 1)
        self.ready_queue.add_many(job for job in live if job.state is JobState.QUEUED)

    def unschedule_expiry(self, jobs: Sequence[Job]) -> None:
        self.expiry_times.remove_many([(job.id, expires_at_ms(job)) for job in jobs])
        self.expiry_heights.remove_many([(job.id, job.expires_height) for job in jobs])


def rebuild_queue(jobs: Iterable[Job]) -> Queue:
    """A queue with counters and indexes as they follow from the jobs; the jobs themselves are not in it."""
    queue, left = Queue(), iter(jobs)
    while some := list(islice(left, JOBS_AT_ONCE)):
        queue.index(some)
    return queue


class InputClaim(msgspec.Struct, array_like=True):
    """Who called the input of a live job invalid, and when it fails if no other provider can try it (JOB-012)."""

    until_ms: int
    providers: list[ProviderId]


class InvalidInputs(msgspec.Struct, array_like=True, gc=False):
    """How many jobs of a requester failed because of their input, in the latest epoch in which one did (JOB-012)."""

    epoch: int
    count: int


class HasQueue(Protocol):
    """The parts of the state that this domain reads and changes."""

    policy: Policy
    ledger: Ledger
    queue: Queue
    claims: Claims
    touched: Touched
    last_event: EventNo
    requeued: dict[TaskId, list[EventNo]]
    """The requeueing events of jobs whose earlier refunds a reorg can still move (RTY-001)."""
    quorums: dict[TaskId, Quorum]
    """The votes of jobs with replicas (LEA-009)."""
    keys: dict[KeyId, Key]
    invalid_inputs: dict[AccountId, InvalidInputs]
    input_claims: dict[TaskId, InputClaim]

    @property
    def open_height(self) -> Height: ...
