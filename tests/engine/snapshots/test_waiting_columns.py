"""A queue that is read from its columns is the queue that wrote them: order, counters and due times included."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.core.commands import DEVELOPMENT
from tests.core.queue.live.test_live_jobs import admit, copies, plain_job
from tests.counts import counts

from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, EventNo
from holdfast.core.escrow.model import Account
from holdfast.core.index.sorted_keys import BLOCK_KEYS
from holdfast.core.queue.invariants import broken_invariants
from holdfast.core.queue.model import Queue
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot
from holdfast.engine.snapshots.waiting_columns import GroupColumns, columns_of, load_columns

pytestmark = pytest.mark.rule("ENG-003", "PRI-003")


def waiting_state(chance: random.Random, many: int, *, is_by_caller: bool = False, **same: object) -> State:
    """So many waiting jobs, some of them as records because they were tried before, or wait for another try."""
    state = State(DEVELOPMENT)
    state.queue.ready_queue.is_by_caller = is_by_caller
    state.queue.jobs.recent_max = chance.choice((0, 5, 1_000))
    for number in range(many):
        job = msgspec.structs.replace(plain_job(chance), event=EventNo(number), **same)
        if chance.random() < 0.1:
            job.attempts, job.not_before_ms = 1, chance.choice((0, 5_000))
        admit(state.queue.jobs, job)
        state.queue.index([job])
        holder = state.ledger.accounts.setdefault(job.caller, Account(AccountId(job.caller)))
        holder.held += job.max_fee
    return state


def order_of(queue: Queue) -> object:
    ready = queue.ready_queue
    return (
        {shape: (list(group.by_priority), list(group.by_age)) for shape, group in ready.groups.items()},
        ready.delayed.buckets,
        ready.waiting,
        ready.is_by_caller,
        (queue.depth, queue.in_flight, queue.expiry_times.buckets, queue.expiry_heights.buckets),
    )


@pytest.mark.parametrize("is_by_caller", [False, True])
def test_a_snapshot_gives_back_jobs_order_counters_and_due_times(is_by_caller: bool) -> None:
    chance = random.Random(1)
    for _ in range(counts(20, 300)):
        state = waiting_state(chance, chance.randrange(40), is_by_caller=is_by_caller)
        before = (digest(state), copies(state.queue.jobs), order_of(state.queue))
        again, _ = restore(snapshot(state, JournalHead()), DEVELOPMENT)
        assert (digest(again), copies(again.queue.jobs), order_of(again.queue)) == before
        assert broken_invariants(again.queue, again.ledger) == []


def test_more_jobs_than_one_block_of_the_order_holds() -> None:
    state = waiting_state(random.Random(2), 3 * BLOCK_KEYS, requirements=b"the same", units=1)
    again, _ = restore(snapshot(state, JournalHead()), DEVELOPMENT)
    assert order_of(again.queue) == order_of(state.queue)
    assert max(len(group.by_priority.blocks) for group in again.queue.ready_queue.groups.values()) > 1


def test_a_restored_job_leaves_like_one_that_was_admitted_here() -> None:
    state = waiting_state(random.Random(3), 50)
    again, _ = restore(snapshot(state, JournalHead()), DEVELOPMENT)
    queue = again.queue
    assert queue.jobs.packed.raw
    for id_ in list(queue.jobs):
        job = queue.jobs[id_]
        queue.ready_queue.remove_many([job])
        queue.count([job], -1)
        queue.unschedule_expiry([job])
        del queue.jobs[id_]
    assert (queue.depth, queue.in_flight, queue.ready_queue.groups, len(queue.jobs)) == (0, {}, {}, 0)
    assert (queue.expiry_times.buckets, queue.expiry_heights.buckets, queue.jobs.packed.terms) == ({}, {}, {})


def test_terms_that_are_numbered_otherwise_are_stored_by_their_position() -> None:
    """Numbers of terms grow for as long as a process runs; a snapshot does not depend on them."""
    chance, state = random.Random(4), State(DEVELOPMENT)
    state.queue.jobs.recent_max = 0
    first, second = plain_job(chance), plain_job(chance)
    first.units, second.units = 101, 102
    for job in (first, second):
        admit(state.queue.jobs, job)
        state.queue.index([job])
    queue = state.queue
    gone = queue.jobs[first.id]
    queue.ready_queue.remove_many([gone])
    queue.count([gone], -1)
    queue.unschedule_expiry([gone])
    del queue.jobs[first.id]
    assert list(queue.jobs.packed.terms) == [1]
    again = Queue()
    load_columns(again, columns_of(queue))
    assert list(again.jobs.packed.terms) == [0]
    assert again.jobs.peek(second.id) == queue.jobs.peek(second.id)


@pytest.mark.parametrize("column", ["age_order", "expires_ms", "expires_heights", "sort_keys"])
def test_a_column_that_contradicts_the_jobs_breaks_an_invariant(column: str) -> None:
    state = waiting_state(random.Random(5), 30)
    state.queue.jobs.pack_all()
    columns = columns_of(state.queue)
    largest = max(columns.groups, key=lambda group: len(group.sort_keys))
    wrong = msgspec.structs.replace(largest, **{column: swapped(largest, column)})
    groups = [wrong if group is largest else group for group in columns.groups]
    again = State(DEVELOPMENT)
    load_columns(again.queue, msgspec.structs.replace(columns, groups=groups))
    for id_, record in state.queue.jobs.records.items():
        again.queue.jobs.records[id_] = record
        again.ledger.reservations[record.id] = state.ledger.reservations[record.id]  # type: ignore[index]
        again.queue.index([record])
    assert broken_invariants(state.queue, state.ledger) == []
    assert broken_invariants(again.queue, again.ledger) != []


def swapped(group: GroupColumns, column: str) -> bytes:
    """The column with its first two entries exchanged, or with its first one changed where both are the same."""
    raw = getattr(group, column)
    width = len(raw) * 48 // len(group.sort_keys)
    first, second, rest = raw[:width], raw[width : 2 * width], raw[2 * width :]
    if first != second:
        return bytes(second + first + rest)
    return bytes(first[:2] + bytes([first[2] ^ 1]) + first[3:] + second + rest)
