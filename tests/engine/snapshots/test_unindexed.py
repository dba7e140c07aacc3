"""A state folded without indexes has the same records, and its snapshot gives the indexes back."""

from __future__ import annotations

import pytest
from tests.core.core_driver import CoreDriver
from tests.core.fleet import fleet, lenient_policy

from holdfast.core import state_machine
from holdfast.core.base.event import JournalHead
from holdfast.core.invariants import broken_invariants
from holdfast.core.lease.messages import FailLease
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.projection.unindexed import drop_indexes, with_order
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

pytestmark = pytest.mark.rule("ENG-003", "ENG-004")
WAITING = 6


def busy_network() -> CoreDriver:
    """Jobs that wait, one of them for another try, one that is leased and one that is done."""
    core = fleet(slots=3)
    jobs = [core.enqueue(nonce) for nonce in range(3)]
    core.match()
    failed = core.lease_of(jobs[1])
    core.do(FailLease(failed.id, failed.provider_id))
    core.complete(jobs[2])
    for nonce in range(WAITING):
        core.enqueue(10 + nonce, max_fee=50 + nonce)
    core.seal()
    return core


def folded_without_indexes(core: CoreDriver) -> State:
    state = State(lenient_policy())
    drop_indexes(state)
    state_machine.apply_all(state, core.events)
    return state


def test_the_projectors_fold_has_every_record_and_mark_and_no_order() -> None:
    core = busy_network()
    state = folded_without_indexes(core)
    assert digest(state) == digest(core.state)
    assert state.touched == core.state.touched
    assert (state.queue.ready_queue.groups, state.queue.expiry_times.buckets, state.leases.due_index.buckets) == (
        {},
        {},
        {},
    )


def test_a_snapshot_of_it_gives_back_the_order_of_waiting_jobs() -> None:
    core = busy_network()
    state = folded_without_indexes(core)
    with with_order(state):
        raw = snapshot(state, JournalHead(last=state.last_event))
    again, _ = restore(raw, lenient_policy())
    assert digest(again) == digest(core.state)
    assert list(again.queue.ready_queue.in_order()) == list(core.state.queue.ready_queue.in_order())
    assert len(list(again.queue.ready_queue.in_order())) == WAITING
    assert broken_invariants(again) == []
    assert state.queue.ready_queue.groups == {}
