"""Finality of full blocks: said at once, let go in lots, and in the end the same as all at once."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from tests.core.blocks import SEAL
from tests.core.ways import ALICE, Way

from holdfast.core.chain import decide
from holdfast.core.chain.acts import BlocksFinal, Release, Released, RollBack
from holdfast.core.chain.decide import is_releasing
from holdfast.core.escrow.acts import Finalized
from holdfast.core.escrow.books import broken_laws
from holdfast.core.event import Tip
from holdfast.core.refusal import Refused
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import Height, TaskId

pytestmark = pytest.mark.rule("CHN-005", "ESC-002")
RESULTS = 5


def full(at_once_max: int) -> Way:
    """A block with some results and the use of one before them, of which the first is just final."""
    way = Way()
    way.funded()
    way.provider(slots=RESULTS)
    early = _resolve(way, 1)[0]
    way.seal()
    way.consume(early)
    _resolve(way, RESULTS)
    way.seal(12)
    with patch.object(decide, "AT_ONCE_MAX", at_once_max):
        way.do(SEAL)
    return way


def _resolve(way: Way, count: int) -> list[TaskId]:
    jobs = [way.enqueue(nonce=len(way.events) + n) for n in range(count)]
    way.match()
    for job in jobs:
        way.complete(job)
    return jobs


def told(state: State) -> object:
    """All but the number of the last event."""
    ledger = state.ledger
    accounts = sorted((a.owner, a.available, a.held, a.pending) for a in ledger.accounts.values())
    kept = (sorted(ledger.holds), dict(ledger.settled), ledger.finalized, sorted(state.queue.jobs))
    return accounts, kept, sorted(state.results), sorted(state.consumptions), sorted(state.claims.recent)


@pytest.mark.parametrize("lot", [1, 2, 5, 100])
def test_lots_of_any_size_come_to_what_one_step_comes_to(lot: int) -> None:
    at_once, way = full(at_once_max=100), full(at_once_max=RESULTS - 1)
    assert isinstance(at_once.events[-1], Finalized)
    assert isinstance(way.events[-1], BlocksFinal)
    assert way.state.ledger.accounts[ALICE].pending > 0
    lots = 0
    while is_releasing(way.state):
        (event,) = way.do(Release(lot))
        assert isinstance(event, Released)
        assert broken_laws(way.state.ledger) == []
        lots += 1
    assert lots >= RESULTS // lot
    assert way.ask(Release(lot)) == ()
    assert told(way.state) == told(at_once.state)
    assert not way.state.settling


def test_a_block_is_final_before_its_money_is_free() -> None:
    way = full(at_once_max=0)
    final = way.state.ledger.finalized
    no = way.ask(RollBack(Height(final - 1)))
    assert isinstance(no, Refused)
    assert no.rule == "CHN-005"
    way.do(RollBack(final))  # what is above can be taken back while the rest leaves
    while is_releasing(way.state):
        way.do(Release(1))
    assert broken_laws(way.state.ledger) == []


def test_what_was_not_let_go_yet_leaves_with_the_next_block_that_is_final() -> None:
    way = full(at_once_max=0)
    way.do(Release(2))
    way.seal()
    assert isinstance(way.events[-1], Finalized)
    assert not is_releasing(way.state)
    assert broken_laws(way.state.ledger) == []


def test_a_snapshot_between_two_lots_goes_on_like_the_state_it_was_taken_of() -> None:
    way = full(at_once_max=0)
    way.do(Release(2))
    copy, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)
    assert digest(copy) == digest(way.state)
    other = Way(copy)
    for each in (way, other):
        each.do(Release(3))
        each.do(Release(100))
    assert digest(other.state) == digest(way.state)
    assert not is_releasing(copy)
