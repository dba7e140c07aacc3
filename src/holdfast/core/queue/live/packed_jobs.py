"""Waiting jobs as bytes: a job that is as it was admitted takes a tenth of its record's memory.

What many jobs have in common is kept once, as terms that are numbered. The number is the packed job's beginning.
Numbers differ from process to process and mean nothing outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.core.base.values import AccountId, Digest, EventNo, Height, Kind, TaskId, Tier
from holdfast.core.job.model import Job, JobState

_NUMBER: Final = Struct(">I")
_LAYOUT: Final = Struct(">Iqq32sq32sq32sqqqqq")
"""The number of the terms, then a `PackedJob`. CAN-005: what is behind it is kept and not read."""
_pack, _unpack = _LAYOUT.pack, _LAYOUT.unpack_from


class JobTerms(NamedTuple):
    """What jobs of one requester mostly have in common."""

    kind: Kind
    caller: AccountId
    tier: Tier
    units: int
    requirements: bytes
    proof: str
    is_public: int = 0


class PackedJob(NamedTuple):
    """What a waiting job has of its own, besides its id. All numbers fit a column of 64 bits."""

    event: EventNo
    height: Height
    tx_hash: Digest
    nonce: int
    request_hash: Digest
    size_bytes: int
    spec_digest: Digest
    max_fee: int
    priority: int
    enqueue_ms: int
    expires_ms: int
    expires_height: Height


_REQUIRED: Final = len(Job.__struct_fields__) - len(Job.__struct_defaults__)
_UNTIL_EXPIRES_HEIGHT, _UNTIL_IS_PUBLIC = (
    Job.__struct_fields__.index(name) + 1 for name in ("expires_height", "is_public")
)
"""The only fields with a default that a packed job has."""


def terms_number(raw: bytes) -> int:
    number: int = _NUMBER.unpack_from(raw)[0]
    return number


def with_terms(number: int, raw: bytes) -> bytes:
    """The packed job with another number of its terms."""
    return _NUMBER.pack(number) + raw[_NUMBER.size :]


def read_own(raw: bytes) -> PackedJob:
    return PackedJob(*_unpack(raw)[1:])


def is_plain(job: Job) -> bool:
    """Whether the job is as it was admitted, so that its packed form says all of it."""
    return (
        job.state is JobState.QUEUED
        and not job.attempts
        and not job.requeues
        and not job.quorum_m
        and not job.parent
        and not job.not_before_ms
        and not job.input_digest
        and not job.run_ms_max
        and not job.run_at_ms
    )


class PackedJobs:
    """Packed jobs by id, and the terms that they refer to."""

    __slots__ = ("_next_number", "_number_of", "_uses", "raw", "terms")

    def __init__(self) -> None:
        self.raw: dict[TaskId, bytes] = {}
        self.terms: dict[int, JobTerms] = {}
        self._number_of: dict[tuple[object, ...], int] = {}
        self._uses: dict[int, int] = {}
        self._next_number = 0

    def add_many(self, jobs: Iterable[Job]) -> None:
        """Pack plain jobs."""
        raw, number_of, uses, pack = self.raw, self._number_of, self._uses, _packed
        for job in jobs:
            terms = (job.kind, job.caller, job.tier, job.units, job.requirements, job.proof, job.is_public)
            number = number_of.get(terms)
            if number is None:
                number = self.add_terms(JobTerms(*terms))
            uses[number] += 1
            raw[job.id] = pack(number, job)

    def add_terms(self, terms: JobTerms) -> int:
        """The number of new terms, which no job has yet."""
        number = self._next_number
        self._next_number += 1
        self.terms[number], self._number_of[terms], self._uses[number] = terms, number, 0
        return number

    def count_terms(self) -> Iterator[tuple[JobTerms, int]]:
        """Count how many jobs have each of the terms, where jobs were added as bytes."""
        uses = Counter(raw[: _NUMBER.size] for raw in self.raw.values())
        self._uses = {number: uses[_NUMBER.pack(number)] for number in self.terms}
        return ((terms, self._uses[number]) for number, terms in self.terms.items())

    def read(self, id_: TaskId) -> Job:
        return self._job(id_, self.raw[id_])

    def take(self, id_: TaskId) -> Job:
        raw = self.raw.pop(id_)
        job = self._job(id_, raw)
        number, uses = _NUMBER.unpack_from(raw)[0], self._uses
        uses[number] -= 1
        if not uses[number]:
            del uses[number], self._number_of[self.terms.pop(number)]
        return job

    def rewrite(self, job: Job) -> None:
        """Replace a packed job by a changed one that is plain, too; its terms are the same."""
        raw = self.raw[job.id]
        self.raw[job.id] = _packed(terms_number(raw), job) + raw[_LAYOUT.size :]

    def fields_of(self, id_: TaskId) -> tuple[Any, ...]:
        job = self.read(id_)
        until = _UNTIL_IS_PUBLIC if job.is_public else _UNTIL_EXPIRES_HEIGHT if job.expires_height else _REQUIRED
        return msgspec.structs.astuple(job)[:until]

    def caller_and_fee(self, id_: TaskId) -> tuple[AccountId, int]:
        """Of whom the job's fee is reserved, and how much."""
        raw = self.raw[id_]
        return self.terms[terms_number(raw)].caller, read_own(raw).max_fee

    def _job(self, id_: TaskId, raw: bytes) -> Job:
        """Written out, since every job that waited long comes by here."""
        number, event, height, tx, nonce, request, size, spec, fee, rank, from_ms, until_ms, until_height = _unpack(raw)
        kind, caller, tier, units, needs, proof, is_public = self.terms[number]
        job = Job(
            event, id_, kind, caller, tier, height, tx, nonce, request, size, spec, fee, units, rank, from_ms, until_ms,
            needs, proof,
        )  # fmt: skip
        job.expires_height, job.is_public = until_height, is_public
        return job


def _packed(number: int, job: Job) -> bytes:
    return _pack(
        number, job.event, job.height, job.tx_hash, job.nonce, job.request_hash, job.size_bytes, job.spec_digest,
        job.max_fee, job.priority, job.enqueue_ms, job.expires_ms, job.expires_height,
    )  # fmt: skip
