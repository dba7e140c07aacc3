"""Leases given by hand, for tests that are not about matching: which provider holds which job is the test's choice."""

from __future__ import annotations

from tests.core.core_driver import CoreDriver

from holdfast.core import state_machine
from holdfast.core.base.values import ProviderId, Seed, TaskId
from holdfast.core.lease.messages import JobAssigned
from holdfast.core.lease.model import Lease, lease_id


def grant_lease(core: CoreDriver, provider: ProviderId, job: TaskId | None = None, nonce: int = 0) -> Lease:
    """A live lease of this provider, of a job that is new where none is given."""
    if job is None:
        job = core.enqueue(nonce=nonce or len(core.events) + 1)
    attempt, now_ms = core.state.queue.jobs[job].attempts, core.now_ms
    name = lease_id(job, provider, attempt, Seed(bytes(32)))
    marks = (now_ms, now_ms + 600_000, now_ms + 360_000, now_ms + 5_000)
    event = JobAssigned(name, job, provider, attempt, *marks, 3, now_ms + 21_600_000)
    state_machine.apply(core.state, event)
    core.events.append(event)
    return core.lease_of(job)
