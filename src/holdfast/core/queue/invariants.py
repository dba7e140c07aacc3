"""What must hold of the queue after every event: its indexes and reservations agree with its jobs."""

from __future__ import annotations

from holdfast.core.base.values import TaskId
from holdfast.core.escrow.model import Ledger, ReservationStatus
from holdfast.core.index.sorted_keys import SortedKeys
from holdfast.core.job.model import LIVE_STATES, Job, JobState, reservation_id
from holdfast.core.queue.model import Queue, rebuild_queue
from holdfast.core.queue.ready_queue import AGE_OFFSET, JobGroup, JobShape, sort_key_of, task_id_of


def broken_invariants(queue: Queue, ledger: Ledger) -> list[str]:
    """The invariants of the queue that do not hold. Jobs are read one at a time: a million records would not fit."""
    rebuilt, jobs = rebuild_queue(queue.jobs.values()), queue.jobs
    checks = {
        "the queue's counters equal its jobs": (rebuilt.depth, rebuilt.in_flight) == (queue.depth, queue.in_flight),
        "every input that a job names is counted": rebuilt.input_uses == queue.input_uses,
        "every queued job is in the ready queue once": _ids_in_ready_queue(queue) == sorted(_queued_ids(queue)),
        "every group of the ready queue is in order": all(
            _is_in_order(queue, shape, group) for shape, group in queue.ready_queue.groups.items()
        ),
        "every live job is due when it expires": (rebuilt.expiry_times.buckets, rebuilt.expiry_heights.buckets)
        == (queue.expiry_times.buckets, queue.expiry_heights.buckets),
        "a live job has its fee reserved": all(
            _is_reserved(job, ledger) for job in jobs.values() if job.state in LIVE_STATES and not job.parent
        ),
        "a job is stored under its own id": all(id_ == job.id for id_, job in jobs.items()),
        "only ended jobs have an end time": all(
            (j.ended_ms is None) == (j.state in LIVE_STATES) for j in jobs.values()
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]


def _ids_in_ready_queue(queue: Queue) -> list[bytes]:
    delayed = [id_ for bucket in queue.ready_queue.delayed.buckets.values() for id_ in bucket]
    return sorted([*queue.ready_queue.in_order(), *delayed])


def _queued_ids(queue: Queue) -> list[bytes]:
    return [job.id for job in queue.jobs.values() if job.state is JobState.QUEUED and not job.quorum_m]


def _is_in_order(queue: Queue, shape: JobShape, group: JobGroup) -> bool:
    """PRI-003, MAT-005: by priority, by age, and under the keys and the shape that follow from the jobs."""
    return (
        _is_sorted(group.by_priority, 0)
        and _is_sorted(group.by_age, AGE_OFFSET)
        and sorted(group.by_age) == list(group.by_priority)
        and all(
            job is not None and (sort_key_of(job), queue.ready_queue.shape_of(job)) == (sort_key, shape)
            for sort_key in group.by_priority
            for job in (queue.jobs.peek(TaskId(task_id_of(sort_key))),)
        )
    )


def _is_sorted(keys: SortedKeys, skip: int) -> bool:
    order = [key[skip:] for key in keys]
    return order == sorted(order)


def _is_reserved(job: Job, ledger: Ledger) -> bool:
    reservation = ledger.reservations.peek(reservation_id(job))
    terms = (job.max_fee, ReservationStatus.HELD, job.caller)
    return reservation is not None and (reservation.amount, reservation.status, reservation.owner) == terms
