"""The sexton: lets the tombstones of jobs go that ended long ago, a bounded lot at a time (TTL-002)."""

from __future__ import annotations

from typing import Final

import structlog

from holdfast.core.job.record import LIVE, Job
from holdfast.core.queue.bury import Bury, Grave
from holdfast.core.refusal import Unavailable
from holdfast.core.values import EventNo
from holdfast.engine import read
from holdfast.engine.loop import Engine
from holdfast.ports import Clock

LOOK_MS: Final = 60_000
LEASES_MAX: Final = 1_000
_log = structlog.get_logger()


class Sexton:
    """Walks the jobs in the order of their admission, only as far as one could have ended long enough ago."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._after = EventNo(0)
        self.buried = 0

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_MS)
            try:
                while await self.look():
                    pass
            except Unavailable as fault:
                _log.info("nobody is buried", because=str(fault))

    async def look(self) -> bool:
        """One lot; whether there may be more."""
        engine = self._engine
        policy, before_ms = engine.state.policy.ttl, engine.now_ms() - engine.state.policy.ttl.tombstone_ms
        listing = await read.page(engine, "job", {}, self._after, policy.collect_jobs_max)
        jobs = [job for job in listing.rows if isinstance(job, Job)]
        old = [job for job in jobs if job.enqueue_ms <= before_ms]
        graves = [grave for job in old if self._is_over(job, before_ms) for grave in await self._graves(job)]
        if graves:
            await engine.submit(Bury(graves))
            self.buried += len(graves)
        is_through = listing.next_after is None or len(old) < len(jobs)
        self._after = EventNo(0) if is_through else EventNo(jobs[-1].event)
        return not is_through

    def _is_over(self, job: Job, before_ms: int) -> bool:
        """Never one that memory has, nor one whose row is about to be another; a replica goes with its job."""
        if job.parent:
            return False
        engine = self._engine
        is_known = job.id in engine.state.queue.jobs or engine.peek(("job", job.event)) is not None
        return job.state not in LIVE and job.ended_ms is not None and job.ended_ms <= before_ms and not is_known

    async def _graves(self, job: Job) -> list[Grave]:
        """One, and those of its replicas (LEA-009)."""
        return [await self._grave(each) for each in (job, *await read.replicas(self._engine, job))]

    async def _grave(self, job: Job) -> Grave:
        """With all its leases: declined often enough, a job has more of them than a page."""
        leases, after = list[EventNo](), 0
        while True:
            rows, _ = await self._engine.tables.page("lease", {"job_id": job.id}, after, LEASES_MAX)
            leases += [EventNo(row[0]) for row in rows if isinstance(row[0], int)]
            if len(rows) < LEASES_MAX:
                return Grave(job.event, job.id, leases)
            after = leases[-1]
