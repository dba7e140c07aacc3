"""Whether a job is over that nobody has ended yet (TTL-001): for who gives work out, so that none of it is given."""

from __future__ import annotations

from itertools import chain, islice
from typing import Final

from holdfast.core.lease.decide import why_over
from holdfast.core.lease.record import Leasing
from holdfast.core.values import TaskId

LOOKED_AT_MAX: Final = 256
"""What was handed in stays due until its verdict: where that is a lot, the reaper finds the others."""


def has_ended(state: Leasing, now_ms: int) -> bool:
    """Looks at what may be due by now, the oldest first; mostly there is nothing."""
    queue = state.queue
    due = chain(queue.agenda.upto(now_ms), queue.heights.upto(state.open_height - 1))
    return any(why_over(state, queue.jobs[TaskId(id_)], now_ms) for id_ in islice(due, LOOKED_AT_MAX))
