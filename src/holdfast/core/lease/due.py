"""Whether a job has expired but is not ended yet (TTL-001): the dispatcher checks, so that it is not assigned."""

from __future__ import annotations

from itertools import chain, islice
from typing import Final

from holdfast.core.base.values import TaskId
from holdfast.core.lease.decide import why_must_expire
from holdfast.core.lease.model import HasLeases

SCAN_MAX: Final = 256
"""Jobs with submissions stay due until their verdict: behind many of them, the reaper finds the others."""


def has_expired_jobs(state: HasLeases, now_ms: int) -> bool:
    """Checks the jobs that may be due by now, oldest first; mostly there are none."""
    queue = state.queue
    due = chain(queue.expiry_times.due_until(now_ms), queue.expiry_heights.due_until(state.open_height - 1))
    return any(why_must_expire(state, queue.jobs[TaskId(id_)], now_ms) for id_ in islice(due, SCAN_MAX))
