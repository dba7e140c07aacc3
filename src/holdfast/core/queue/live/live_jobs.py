"""The jobs that memory holds, by id: records, and waiting jobs as bytes (`packed_jobs`).

A job is a record from its admission on, and again from the moment it is read for a change. It is packed when many
others were admitted after it and it still waits untouched: a queue that is served at once packs nothing. The
reservation of a packed job follows from it and takes no memory.
"""

from __future__ import annotations

from collections import deque
from typing import Final, cast

from holdfast.core.base.values import Amount, ReservationId, TaskId
from holdfast.core.escrow.model import NO_ROW, Reservation, Reservations, ReservationStatus
from holdfast.core.index.packed_records import PackedRecords
from holdfast.core.job.model import Job
from holdfast.core.queue.live.packed_jobs import PackedJobs, is_plain

RECENT_MAX: Final = 16_384
"""The number of jobs that are admitted before the oldest of them are packed."""
STEPS: Final = 64
"""The number of steps in which they are packed: a few hundred at once cost less than one by one."""


class LiveJobs(PackedRecords[TaskId, Job]):
    """Jobs by id. What is packed has a reservation that follows from it."""

    __slots__ = ("_recent", "recent_max", "reservations")
    packed: PackedJobs

    def __init__(self, recent_max: int = RECENT_MAX) -> None:
        super().__init__()
        self.packed = PackedJobs()
        self.reservations = Reservations()
        self.recent_max = recent_max
        self._recent: deque[TaskId] = deque()
        """Admitted last and not yet packed, in the order of admission; some have been assigned or have ended."""

    def share(self, reservations: Reservations) -> None:
        """These are the reservations of the jobs, from the start: those of packed jobs are left to this mapping."""
        self.reservations, reservations.packed = reservations, _PackedFees(self)

    def __setitem__(self, id_: TaskId, job: Job) -> None:
        """Add a job, and now and then pack those that were added long before it and still wait."""
        if id_ in self.packed.raw:
            self._unpack(id_)
        records, recent = self.records, self._recent
        records[id_] = job
        while recent and recent[0] not in records:  # it has left memory
            recent.popleft()
        recent.append(id_)
        if len(recent) > self.recent_max:
            self._pack([recent.popleft() for _ in range(1 + self.recent_max // STEPS)])

    def rewrite(self, job: Job) -> None:
        """Store a job that was looked at and changed where no part of its terms changed: a packed one stays packed."""
        if job.id in self.packed.raw:
            self.packed.rewrite(job)

    def pack_all(self) -> None:
        """Pack all that can be packed. No record of a waiting job may be held across this."""
        self._recent.clear()
        self._pack(list(self.records))

    def _pack(self, ids: list[TaskId]) -> None:
        records, held = self.records, self.reservations.records
        job_of = records.get
        plain = [
            job
            for id_ in ids
            if (job := job_of(id_)) is not None
            and is_plain(job)
            and (reservation := held.get(ReservationId(id_))) is not None
            and reservation.amount == job.max_fee
            and reservation.owner == job.caller
            and reservation.status is ReservationStatus.HELD
        ]
        self.packed.add_many(plain)
        for job in plain:
            del records[job.id], held[ReservationId(job.id)]

    def _unpack(self, id_: TaskId) -> Job:
        job = self.records[id_] = self.packed.take(id_)
        fee = ReservationId(id_)
        self.reservations.records[fee] = Reservation(NO_ROW, fee, job.caller, Amount(job.max_fee))
        return job


class _PackedFees:
    """The reservations of packed jobs, as they follow from them; a job is unpacked with its reservation."""

    __slots__ = ("_jobs", "raw")

    def __init__(self, jobs: LiveJobs) -> None:
        self._jobs, self.raw = jobs, cast("dict[ReservationId, bytes]", jobs.packed.raw)

    def read(self, id_: ReservationId) -> Reservation:
        owner, amount = self._jobs.packed.caller_and_fee(TaskId(id_))
        return Reservation(NO_ROW, id_, owner, Amount(amount))

    def fields_of(self, id_: ReservationId) -> tuple[object, ...]:
        return NO_ROW, id_, *self._jobs.packed.caller_and_fee(TaskId(id_))

    def take(self, id_: ReservationId) -> Reservation:
        _ = self._jobs[TaskId(id_)]
        return self._jobs.reservations.records[id_]
