"""What must hold of the queue after every event: its indexes and reservations agree with its jobs."""

from __future__ import annotations

from holdfast.core.escrow.model import Ledger
from holdfast.core.job.model import LIVE_STATES, Job, JobState, reservation_id
from holdfast.core.queue.model import Queue, rebuild_queue


def broken_invariants(queue: Queue, ledger: Ledger) -> list[str]:
    """The invariants of the queue that do not hold."""
    rebuilt = rebuild_queue(queue.jobs)
    live = [job for job in queue.jobs.values() if job.state in LIVE_STATES]
    checks = {
        "the queue's counters equal its jobs": (rebuilt.depth, rebuilt.in_flight) == (queue.depth, queue.in_flight),
        "every queued job is in the ready queue once": _ids_in_ready_queue(queue) == sorted(_queued_ids(queue)),
        "a live job has its fee reserved": all(_is_reserved(job, ledger) for job in live if not job.parent),
        "a job is stored under its own id": all(id_ == job.id for id_, job in queue.jobs.items()),
        "only ended jobs have an end time": all(
            (j.ended_ms is None) == (j.state in LIVE_STATES) for j in queue.jobs.values()
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]


def _ids_in_ready_queue(queue: Queue) -> list[bytes]:
    delayed = [id_ for bucket in queue.ready_queue.delayed.buckets.values() for id_ in bucket]
    return sorted([*queue.ready_queue.in_order(), *delayed])


def _queued_ids(queue: Queue) -> list[bytes]:
    return [job.id for job in queue.jobs.values() if job.state is JobState.QUEUED and not job.quorum_m]


def _is_reserved(job: Job, ledger: Ledger) -> bool:
    reservation = ledger.reservations.get(reservation_id(job))
    return reservation is not None and (reservation.amount, reservation.status, reservation.owner) == (
        job.max_fee,
        "HELD",
        job.caller,
    )
