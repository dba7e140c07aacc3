"""Leases given by hand, for tests that are not about matching: which provider holds which job is the test's choice."""

from __future__ import annotations

from tests.core.ways import Way

from holdfast.core import law
from holdfast.core.lease.acts import JobAssigned
from holdfast.core.lease.ids import lease_id
from holdfast.core.lease.record import Lease
from holdfast.core.values import ProviderId, Seed, TaskId


def lent(way: Way, provider: ProviderId, job: TaskId | None = None, nonce: int = 0) -> Lease:
    """A live lease of this provider, of a job that is new where none is given."""
    if job is None:
        job = way.enqueue(nonce=nonce or len(way.events) + 1)
    attempt, now_ms = way.state.queue.jobs[job].attempts, way.now_ms
    name = lease_id(job, provider, attempt, Seed(bytes(32)))
    marks = (now_ms, now_ms + 600_000, now_ms + 360_000, now_ms + 5_000)
    event = JobAssigned(name, job, provider, attempt, *marks, 3, now_ms + 21_600_000)
    law.apply(way.state, event)
    way.events.append(event)
    return way.lease_of(job)
