"""Finality of full blocks: said at once, let go in steps, and in the end the same as all at once."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from tests.core.blocks import SEAL
from tests.core.core_driver import ALICE, CoreDriver

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import EventNo, Height, TaskId
from holdfast.core.chain.messages import (
    BlocksFinal,
    EvictFinalTxs,
    FinalizeSettlements,
    FinalTxsEvicted,
    RollBackBlocks,
    SettlementsFinalized,
)
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.escrow.messages import Finalized
from holdfast.core.invariants import broken_invariants as core_invariants
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.core.workflows import seal
from holdfast.core.workflows.finalize import has_evictable_txs, has_pending_settlements
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

pytestmark = pytest.mark.rule("CHN-005", "ESC-002")
RESULTS = 5


def full_block(at_once_max: int) -> CoreDriver:
    """A block with some results and the use of one before them, of which the first is just final."""
    core = CoreDriver()
    core.funded()
    core.provider(slots=RESULTS)
    early = _resolve(core, 1)[0]
    core.seal()
    core.consume(early)
    _resolve(core, RESULTS)
    core.seal(12)
    with patch.object(seal, "AT_ONCE_MAX", at_once_max):
        core.do(SEAL)
    return core


def _resolve(core: CoreDriver, count: int) -> list[TaskId]:
    jobs = [core.enqueue(nonce=len(core.events) + n) for n in range(count)]
    core.match()
    for job in jobs:
        core.complete(job)
    return jobs


def comparable_parts(state: State) -> object:
    """All but the number of the last event."""
    ledger = state.ledger
    accounts = sorted((a.owner, a.available, a.held, a.pending) for a in ledger.accounts.values())
    kept = (
        sorted(ledger.reservations),
        dict(ledger.settled_by_height),
        ledger.finalized_height,
        sorted(state.queue.jobs),
    )
    return accounts, kept, sorted(state.results), sorted(state.consumptions), sorted(state.claims.recent)


@pytest.mark.parametrize("run_max", [1, 2, 5, 100])
def test_evicting_in_runs_of_any_size_gives_what_one_step_gives(run_max: int) -> None:
    at_once, core = full_block(at_once_max=100), full_block(at_once_max=RESULTS - 1)
    assert isinstance(at_once.events[-1], Finalized)
    assert isinstance(core.events[-1], BlocksFinal)
    assert core.state.ledger.accounts[ALICE].pending > 0
    steps = 0
    while has_pending_settlements(core.state):
        (event,) = core.do(FinalizeSettlements(run_max))
        assert isinstance(event, SettlementsFinalized)
        assert broken_invariants(core.state.ledger) == []
        steps += 1
    assert steps >= RESULTS // run_max
    assert core.ask(FinalizeSettlements(run_max)) == ()
    assert comparable_parts(core.state) == comparable_parts(at_once.state)


@pytest.mark.rule("ENG-004")
@pytest.mark.parametrize("run_max", [1, 2, 5, 100])
def test_evicting_in_runs_of_any_size_gives_what_one_run_gives(run_max: int) -> None:
    at_once, core = full_block(at_once_max=100), full_block(at_once_max=100)
    at_once.do(EvictFinalTxs(at_once.state.last_event, 1_000))
    as_of, runs = core.state.last_event, 0
    assert core.state.ledger.accounts[ALICE].pending == 0  # the money moved before anything is evicted
    while has_evictable_txs(core.state, as_of):
        (event,) = core.do(EvictFinalTxs(as_of, run_max))
        assert isinstance(event, FinalTxsEvicted)
        assert core_invariants(core.state) == []
        runs += 1
    assert runs >= RESULTS // run_max
    assert core.ask(EvictFinalTxs(as_of, run_max)) == ()
    assert comparable_parts(core.state) == comparable_parts(at_once.state)
    assert not core.state.final_blocks
    assert not core.state.ledger.final_reservations
    assert (core.state.evicted_as_of, at_once.state.evicted_as_of) == (as_of, as_of)
    assert set(core.state.attempts) == set(core.state.queue.jobs)


@pytest.mark.rule("ENG-004")
def test_what_became_final_after_the_tables_checkpoint_is_not_evicted() -> None:
    core = full_block(at_once_max=100)
    core.do(SEAL)
    first, last = (block.event for block in core.state.final_blocks.values())
    before = comparable_parts(core.state)
    assert core.ask(EvictFinalTxs(EventNo(first - 1))) == ()
    assert comparable_parts(core.state) == before
    assert len(core.state.results) == RESULTS
    core.do(EvictFinalTxs(EventNo(last - 1), 1_000))
    assert [block.event for block in core.state.final_blocks.values()] == [last]
    assert not core.state.results
    assert not core.state.ledger.final_reservations
    assert core.state.evicted_as_of == last - 1


def test_a_block_is_final_before_its_money_is_free() -> None:
    core = full_block(at_once_max=0)
    final = core.state.ledger.finalized_height
    no = core.ask(RollBackBlocks(Height(final - 1)))
    assert isinstance(no, Refused)
    assert no.rule == "CHN-005"
    core.do(RollBackBlocks(final))  # what is above can be rolled back while the rest leaves
    while has_pending_settlements(core.state):
        core.do(FinalizeSettlements(1))
    assert broken_invariants(core.state.ledger) == []


def test_money_that_is_not_available_yet_becomes_so_with_the_next_block_that_is_final() -> None:
    core = full_block(at_once_max=0)
    core.do(FinalizeSettlements(2))
    core.do(SEAL)
    assert isinstance(core.events[-1], Finalized)
    assert not has_pending_settlements(core.state)
    assert broken_invariants(core.state.ledger) == []


def test_a_snapshot_between_two_runs_goes_on_like_the_state_it_was_taken_of() -> None:
    core = full_block(at_once_max=0)
    core.do(FinalizeSettlements(2))
    core.do(EvictFinalTxs(core.state.last_event, 2))
    copy, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    assert digest(copy) == digest(core.state)
    other = CoreDriver(copy)
    for each in (core, other):
        each.do(FinalizeSettlements(100))
        each.do(EvictFinalTxs(each.state.last_event, 3))
        each.do(EvictFinalTxs(each.state.last_event, 100))
    assert digest(other.state) == digest(core.state)
    assert not has_evictable_txs(copy, copy.last_event)
