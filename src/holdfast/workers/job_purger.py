"""Purges jobs that ended long ago, in bounded pages (TTL-002)."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.values import EventNo
from holdfast.core.job.model import LIVE_STATES, Job
from holdfast.core.queue.purge import PurgedJob, PurgeJobs
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

INTERVAL_MS: Final = 60_000
LEASES_MAX: Final = 1_000
"""Leases of a job that are read in one page."""


class JobPurger:
    """Reads the jobs in the order of their admission, only as far as one could have ended long enough ago."""

    starts_at_once = False
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._after = EventNo(0)
        self._purged_at = EventNo(0)
        """The event of the last purge: before the tables know it, they show what is gone."""
        self.purged = 0

    async def run_once(self) -> None:
        """Purge page by page, up to the first job that is too young."""
        while await self.purge_page():
            pass

    async def purge_page(self) -> bool:
        """Purge the next page; whether there may be more."""
        engine = self._engine
        policy = engine.undurable_state.policy.ttl
        before_ms = engine.now_ms() - policy.tombstone_ms
        page = await queries.page(engine, "job", {}, self._after, policy.gc_jobs_max)
        if page.as_of < max(engine.undurable_state.evicted_as_of, EventNo(0) if self._after else self._purged_at):
            return False  # these rows are older than what left memory, or than what the last run purged
        jobs = [job for job in page.rows if isinstance(job, Job)]
        old = [job for job in jobs if job.enqueue_ms <= before_ms]
        purged = [each for job in old if self._is_purgeable(job, before_ms) for each in await self._purged_jobs(job)]
        if purged:
            outcome = await engine.submit(PurgeJobs(purged))
            self._purged_at = outcome.event if isinstance(outcome, Accepted) else self._purged_at
            self.purged += len(purged)
        is_last = page.next_after is None or len(old) < len(jobs)
        self._after = EventNo(0) if is_last else EventNo(jobs[-1].event)
        return not is_last

    def _is_purgeable(self, job: Job, before_ms: int) -> bool:
        """Never one in memory; a replica is purged with its job."""
        if job.parent:
            return False
        is_known = job.id in self._engine.undurable_state.queue.jobs
        return job.state not in LIVE_STATES and job.ended_ms is not None and job.ended_ms <= before_ms and not is_known

    async def _purged_jobs(self, job: Job) -> list[PurgedJob]:
        """The job and its replicas (LEA-009)."""
        return [await self._purged_job(each) for each in (job, *await queries.replicas(self._engine, job))]

    async def _purged_job(self, job: Job) -> PurgedJob:
        """The job with those of its leases that have rows: they came after it was evicted and requeued."""
        leases, after = list[EventNo](), 0
        if not job.requeues:
            return PurgedJob(job.event, job.id)
        while True:
            rows, _ = await self._engine.tables.page("lease", {"job_id": job.id}, after, LEASES_MAX)
            leases += [EventNo(row[0]) for row in rows if isinstance(row[0], int)]
            if len(rows) < LEASES_MAX:
                return PurgedJob(job.event, job.id, leases)
            after = leases[-1]
