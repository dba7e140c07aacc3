"""The jobs that memory holds, by id: records, and waiting jobs as bytes (`packed_jobs`).

A job is a record from its admission on, and again from the moment it is read for a change. It is packed when many
others were admitted after it and it still waits untouched: a queue that is served at once packs nothing. The
reservation of a packed job follows from it and takes no memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from typing import Final, cast

from holdfast.core.base.values import AccountId, ReservationId, TaskId
from holdfast.core.escrow.model import NO_ROW, Reservation, Reservations, ReservationStatus
from holdfast.core.job.model import Job
from holdfast.core.queue.live.packed_jobs import JobTerms, PackedJobs, is_plain

RECENT_MAX: Final = 16_384
"""The number of jobs that are admitted before the oldest of them are packed."""
STEPS: Final = 64
"""The number of steps in which they are packed: a few hundred at once cost less than one by one."""


class LiveJobs(MutableMapping[TaskId, Job]):
    """A mapping whose `[]` and `get` give the record itself. What only looks uses `peek`, `values` or `items`."""

    __slots__ = ("_recent", "packed", "recent_max", "records", "reservations")

    def __init__(self, recent_max: int = RECENT_MAX) -> None:
        self.records: dict[TaskId, Job] = {}
        self.packed = PackedJobs()
        self.reservations = Reservations()
        self.recent_max = recent_max
        self._recent: deque[TaskId] = deque()
        """Admitted last and not yet packed, in the order of admission; some have been assigned or have ended."""

    def share(self, reservations: Reservations) -> None:
        """These are the reservations of the jobs, from the start: those of packed jobs are left to this mapping."""
        self.reservations, reservations.packed = reservations, self

    def __getitem__(self, id_: TaskId) -> Job:
        try:
            return self.records[id_]
        except KeyError:
            return self._unpack(id_)

    def __setitem__(self, id_: TaskId, job: Job) -> None:
        """Add a job, and now and then pack those that were added long before it and still wait."""
        if id_ in self.packed.raw:
            self._unpack(id_)
        self.records[id_] = job
        self._recent.append(id_)
        if len(self._recent) > self.recent_max:
            self._pack([self._recent.popleft() for _ in range(1 + self.recent_max // STEPS)])

    def __delitem__(self, id_: TaskId) -> None:
        if id_ in self.packed.raw:
            self._unpack(id_)
        del self.records[id_]

    def __contains__(self, id_: object) -> bool:
        return id_ in self.records or id_ in self.packed.raw

    def __len__(self) -> int:
        return len(self.records) + len(self.packed.raw)

    def __iter__(self) -> Iterator[TaskId]:
        yield from self.packed.raw
        yield from self.records

    def __reversed__(self) -> Iterator[TaskId]:
        yield from reversed(self.records)
        yield from reversed(self.packed.raw)

    def peek(self, id_: TaskId) -> Job | None:
        """The job to look at: of a packed one a copy, which stays packed. None where memory has no such job."""
        job = self.records.get(id_)
        if job is None and id_ in self.packed.raw:
            return self.packed.read(id_)
        return job

    def fields_of(self, id_: TaskId) -> Job | tuple[object, ...]:
        """The record of a job; of a packed one its fields, as far as they are not trailing defaults."""
        return self.packed.fields_of(id_) if id_ in self.packed.raw else self.records[id_]

    def terms_of(self, id_: TaskId) -> Job | JobTerms:
        """What a job has in common with others, without unpacking it."""
        return self.packed.terms_of(id_) if id_ in self.packed.raw else self.records[id_]

    def values(self) -> _JobsToLookAt:
        """All jobs to look at: of packed ones copies, each made when it is reached."""
        return _JobsToLookAt(self)

    def items(self) -> _ItemsToLookAt:
        return _ItemsToLookAt(self)

    def rewrite(self, job: Job) -> None:
        """Store a job that was looked at and changed where no part of its terms changed: a packed one stays packed."""
        if job.id in self.packed.raw:
            self.packed.rewrite(job)

    def pack_all(self) -> None:
        """Pack all that can be packed. No record of a waiting job may be held across this."""
        self._recent.clear()
        self._pack(list(self.records))

    def _pack(self, ids: list[TaskId]) -> None:
        """Of these jobs pack those that can be packed."""
        records, held = self.records, self.reservations.records
        job_of = records.get
        plain = [
            job
            for id_ in ids
            if (job := job_of(id_)) is not None
            and is_plain(job)
            and (reservation := held.get(id_)) is not None  # type: ignore[call-overload]  # both have the same id
            and reservation.amount == job.max_fee
            and reservation.owner == job.caller
            and reservation.status is ReservationStatus.HELD
        ]
        self.packed.add_many(plain)
        for job in plain:
            del records[job.id], held[job.id]  # type: ignore[index]

    def _unpack(self, id_: TaskId) -> Job:
        job = self.records[id_] = self.packed.take(id_)
        self.reservations.records[id_] = Reservation(NO_ROW, id_, job.caller, job.max_fee)  # type: ignore[index, arg-type]
        return job

    # -------------------------------------------------------------------------------------------- reservations

    def reservation_ids(self) -> KeysView[ReservationId]:
        """Whose reservations follow from packed jobs."""
        return cast("KeysView[ReservationId]", self.packed.raw.keys())

    def owner_and_amount(self, id_: ReservationId) -> tuple[AccountId, int]:
        """All that the reservation of a packed job says."""
        return self.packed.caller_and_fee(TaskId(id_))

    def unpack_reservation(self, id_: ReservationId) -> Reservation:
        """The reservation of a packed job, to change; the job is unpacked with it."""
        self._unpack(TaskId(id_))
        return self.reservations.records[id_]


class _JobsToLookAt(ValuesView[Job]):
    _mapping: LiveJobs

    def __iter__(self) -> Iterator[Job]:
        yield from self._mapping.packed.values()
        yield from self._mapping.records.values()


class _ItemsToLookAt(ItemsView[TaskId, Job]):
    _mapping: LiveJobs

    def __iter__(self) -> Iterator[tuple[TaskId, Job]]:
        for job in self._mapping.packed.values():
            yield job.id, job
        yield from self._mapping.records.items()
