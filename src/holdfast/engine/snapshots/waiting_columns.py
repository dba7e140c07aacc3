"""Packed jobs in a snapshot: columns in the order of the ready queue, so that a start neither decodes nor sorts them.

Columns that repeat what the packed jobs say spare the start a million decodings; `holdfast db check` compares both.
Numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from struct import calcsize, pack, unpack
from typing import Final, cast

import msgspec

from holdfast.core.base.values import TaskId
from holdfast.core.index.sorted_keys import from_sorted
from holdfast.core.job.model import TASK_ID_BYTES
from holdfast.core.queue.live.packed_jobs import JobTerms, PackedJobs, read_own, terms_number, with_terms
from holdfast.core.queue.model import Queue
from holdfast.core.queue.ready_queue import AGE_OFFSET, ID_OFFSET, JobGroup, JobShape

KEY_BYTES: Final = ID_OFFSET + TASK_ID_BYTES
U32, U64 = "I", "Q"


class GroupColumns(msgspec.Struct, frozen=True, array_like=True):
    """The packed jobs of one group of the ready queue, by priority: every column has one entry for each."""

    sort_keys: bytes
    """The job's id is their end."""
    age_order: bytes
    """The positions of the jobs, the oldest first; 4 bytes each, as in `lengths`."""
    expires_ms: bytes
    """8 bytes each, as in `expires_heights`."""
    expires_heights: bytes
    lengths: bytes
    jobs: bytes
    """The packed jobs, as long as `lengths` says. The number of their terms is a position in the list of terms."""
    ceilings: tuple[int, int]
    """`JobGroup.ceiling_min` and `ceiling_max`."""


class WaitingColumns(msgspec.Struct, frozen=True, array_like=True):
    """All packed jobs."""

    terms: list[JobTerms]
    groups: list[GroupColumns]
    is_by_caller: bool = False
    """Whether the groups differ by requester."""
    prices: list[int] = []
    """The prices that the groups tell apart (MAT-002)."""


# ------------------------------------------------------------------------------------------------ write


def columns_of(queue: Queue) -> WaitingColumns:
    """The packed jobs of a queue."""
    packed, ready_queue = queue.jobs.packed, queue.ready_queue
    positions = {number: position for position, number in enumerate(packed.terms)}
    groups = [_group_columns(packed, group, positions) for group in ready_queue.groups.values()]
    return WaitingColumns(
        terms=list(packed.terms.values()),
        groups=[group for group in groups if group.sort_keys],
        is_by_caller=ready_queue.is_by_caller,
        prices=ready_queue.prices,
    )


def _group_columns(packed: PackedJobs, group: JobGroup, positions: dict[int, int]) -> GroupColumns:
    raw = packed.raw
    sort_keys = [key for key in group.by_priority if key[ID_OFFSET:] in raw]
    packed_jobs = [raw[TaskId(key[ID_OFFSET:])] for key in sort_keys]
    at = {key: position for position, key in enumerate(sort_keys)}
    expires = [(own.expires_ms, own.expires_height) for own in map(read_own, packed_jobs)]
    return GroupColumns(
        sort_keys=b"".join(sort_keys),
        age_order=_column(U32, [at[key] for key in group.by_age if key in at]),
        expires_ms=_column(U64, [ms for ms, _ in expires]),
        expires_heights=_column(U64, [height for _, height in expires]),
        lengths=_column(U32, [len(job) for job in packed_jobs]),
        jobs=b"".join([with_terms(positions[terms_number(job)], job) for job in packed_jobs]),
        ceilings=(group.ceiling_min, group.ceiling_max),
    )


def _column(kind: str, values: Sequence[int]) -> bytes:
    return pack(f"<{len(values)}{kind}", *values)


# ------------------------------------------------------------------------------------------------ read


def load_columns(queue: Queue, columns: WaitingColumns) -> None:
    """Fill an empty queue with the packed jobs of a snapshot."""
    ready_queue, packed = queue.ready_queue, queue.jobs.packed
    ready_queue.is_by_caller, ready_queue.prices = columns.is_by_caller, list(columns.prices)
    for terms in columns.terms:
        packed.add_terms(terms)
    for group in columns.groups:
        _load_group(queue, group)
    for terms, uses in packed.count_terms():
        queue.in_flight[terms.caller] = queue.in_flight.get(terms.caller, 0) + uses
        ready_queue.waiting[terms.kind] = ready_queue.waiting.get(terms.kind, 0) + uses
    queue.depth = ready_queue.version = len(packed.raw)


def _load_group(queue: Queue, group: GroupColumns) -> None:
    all_keys, all_jobs, packed = group.sort_keys, group.jobs, queue.jobs.packed
    sort_keys = [all_keys[at : at + KEY_BYTES] for at in range(0, len(all_keys), KEY_BYTES)]
    ids = cast("list[TaskId]", [key[ID_OFFSET:] for key in sort_keys])
    ends = pairwise(accumulate(_numbers(U32, group.lengths), initial=0))
    packed.raw.update(zip(ids, [all_jobs[begin:end] for begin, end in ends], strict=True))
    by_age = [sort_keys[at] for at in _numbers(U32, group.age_order)]
    shape = JobShape(*queue.ready_queue.shape_of(packed.read(ids[0])))
    queue.ready_queue.groups[shape] = JobGroup(from_sorted(sort_keys), from_sorted(by_age, AGE_OFFSET), *group.ceilings)
    queue.expiry_times.schedule_many(zip(ids, _numbers(U64, group.expires_ms), strict=True))
    heights = _numbers(U64, group.expires_heights)
    queue.expiry_heights.schedule_many((id_, height) for id_, height in zip(ids, heights, strict=True) if height)


def _numbers(kind: str, column: bytes) -> tuple[int, ...]:
    return unpack(f"<{len(column) // calcsize(f'<{kind}')}{kind}", column)
