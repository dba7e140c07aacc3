"""Using a result: once, by whom it was made for, when it is readable; and what a reorg does to that."""

from __future__ import annotations

import pytest
from tests.core.ways import ALICE, Way

from holdfast.core import law
from holdfast.core.canon import decode
from holdfast.core.chain.acts import Reincluded, RollBack
from holdfast.core.chain.apply import tx_leaf
from holdfast.core.chain.blocks import TxKind
from holdfast.core.event import Decided, Event, Tip
from holdfast.core.queue.acts import Cancel
from holdfast.core.refusal import Refused
from holdfast.core.result.acts import ConsumptionDropped, ResultConsumed
from holdfast.core.result.read import why_not_readable
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import AccountId, EventNo, Height, TaskId

BOB = AccountId("bob")


def resolved(at: int = 2, blocks: int = 0) -> tuple[Way, TaskId]:
    """A result in the block of this height, and so many blocks on it."""
    way = Way()
    way.funded()
    way.provider()
    job = way.enqueue()
    way.seal(at - 1)
    way.match()
    way.complete(job)
    way.seal(blocks)
    return way, job


def name_of(outcome: object) -> str:
    assert isinstance(outcome, Refused), outcome
    return outcome.name


def done(outcome: object) -> Event:
    assert isinstance(outcome, tuple), outcome
    assert len(outcome) == 1
    return outcome[0]  # type: ignore[no-any-return]


@pytest.mark.rule("RES-005", "CHN-001")
def test_a_result_is_consumed_once_in_a_transaction_of_the_chain() -> None:
    way, job = resolved(at=2, blocks=1)
    event = done(way.consume(job, tx=1))
    assert isinstance(event, ResultConsumed)
    assert (event.caller, event.height, event.result) == (ALICE, 3, way.state.results[job].event)
    (tx,) = way.state.chain.open.txs
    assert (tx.kind, tx.subject, tx.number) == (TxKind.CONSUMPTION, job, way.state.last_event)
    assert decode(tx_leaf(tx.kind, tx.number, tx.subject, event.tx_hash))[0] == "consumption"  # type: ignore[index]
    assert way.consume(job, tx=1) == ()  # the same transaction again
    assert name_of(way.consume(job, tx=2)) == "AlreadyConsumed"
    way.seal()
    assert name_of(way.consume(job, tx=2)) == "AlreadyConsumed"


@pytest.mark.rule("RES-005")
def test_only_the_jobs_caller_may_consume_and_learns_no_more_than_that() -> None:
    way, job = resolved(blocks=1)
    assert name_of(way.consume(job, caller=BOB)) == "Forbidden"
    way.seal(20)
    assert job not in way.state.results
    assert name_of(way.consume(job, caller=BOB)) == "Forbidden"
    pending = way.enqueue(nonce=2)
    assert name_of(way.consume(pending, caller=BOB)) == "Forbidden"


@pytest.mark.rule("RES-002", "RES-005", "RES-007")
def test_what_cannot_be_read_cannot_be_consumed() -> None:
    way, job = resolved(at=2)
    assert name_of(way.consume(job)) == "NoResultYet"  # block 2 is open
    way.seal()
    assert isinstance(done(way.consume(job)), ResultConsumed)
    waiting = way.enqueue(nonce=2)
    assert name_of(way.consume(waiting)) == "NoResultYet"
    way.do(Cancel(waiting))
    assert name_of(way.consume(waiting)) == "Expired"
    assert name_of(way.consume(TaskId(bytes(32)))) == "NotFound"


@pytest.mark.rule("RES-005", "ENG-005")
def test_a_result_that_is_only_a_row_is_consumed_once_too_and_for_ever() -> None:
    way, job = resolved(blocks=20)
    assert (job in way.state.results, job in way.state.queue.jobs) == (False, False)
    assert isinstance(done(way.consume(job, tx=1)), ResultConsumed)
    assert name_of(way.consume(job, tx=2)) == "AlreadyConsumed"
    way.seal(20)
    assert not way.state.consumptions
    assert name_of(way.consume(job, tx=2)) == "AlreadyConsumed"
    assert way.consume(job, tx=1) == ()  # whoever did it is told so, for ever
    assert name_of(way.consume(job, tx=1, caller=BOB)) == "AlreadyConsumed"


@pytest.mark.rule("RES-005", "CHN-004")
def test_a_reorg_above_the_result_takes_the_mark_back_and_sets_it_again_at_the_new_height() -> None:
    way, job = resolved(at=2, blocks=3)
    way.consume(job)  # in block 5
    way.seal(2)
    assert way.state.consumptions[job].height == 5
    events = way.do(RollBack(Height(3)))
    assert isinstance(events[-1], Reincluded)
    assert way.state.consumptions[job].height == 4
    assert name_of(way.consume(job, tx=2)) == "AlreadyConsumed"
    way.seal(20)
    assert name_of(way.consume(job, tx=2)) == "AlreadyConsumed"


@pytest.mark.rule("RES-005", "RES-006")
def test_the_mark_is_gone_with_its_block_before_anything_is_included_again() -> None:
    way, job = resolved(at=2, blocks=3)
    way.consume(job)  # in block 5
    way.seal()
    decided = law.decide(way.state, RollBack(Height(4)), way.now_ms)
    assert isinstance(decided, Decided)
    *undone, again = decided.events
    for event in undone:
        law.apply(way.state, event)
    assert way.state.consumptions[job].height == 0
    law.apply(way.state, again)
    assert way.state.consumptions[job].height == 5


@pytest.mark.rule("RES-002", "RES-005", "RES-006")
def test_a_reorg_that_takes_the_result_too_drops_the_consumption_since_nobody_could_read_it_there() -> None:
    way, job = resolved(at=2, blocks=2)
    way.consume(job, tx=1)
    way.seal()
    *_, last, dropped = way.do(RollBack(Height(1)))
    assert isinstance(last, Reincluded)
    assert isinstance(dropped, ConsumptionDropped)
    assert (dropped.task_id, dropped.caller) == (job, ALICE)
    assert not way.state.consumptions
    assert name_of(way.consume(job, tx=1)) == "NoResultYet"
    way.seal()
    assert isinstance(done(way.consume(job, tx=1)), ResultConsumed)  # the same transaction, in a block where it counts
    way.seal(20)
    assert name_of(way.consume(job, tx=2)) == "AlreadyConsumed"


@pytest.mark.rule("RES-005", "CHN-004")
def test_a_consumption_that_was_dropped_stays_without_effect_in_every_later_reorg() -> None:
    way, job = resolved(at=2, blocks=1)
    way.consume(job, tx=1)
    way.do(RollBack(Height(1)))  # both in block 2 now: the consumption does not count
    way.seal()
    way.consume(job, tx=2)  # in block 3
    way.seal()
    way.do(RollBack(Height(2)))
    assert way.state.consumptions[job].height == 3
    kinds = [tx.kind for tx in way.state.chain.recent[Height(2)].txs]
    assert kinds.count(TxKind.CONSUMPTION) == 1
    way.do(RollBack(Height(1)))
    assert not way.state.consumptions
    way.seal(20)
    assert isinstance(done(way.consume(job, tx=3)), ResultConsumed)


@pytest.mark.rule("RES-002")
def test_where_a_reorg_brings_the_head_below_the_receipt_nobody_reads_before_the_height_it_promised() -> None:
    way = Way()
    way.funded()
    way.provider()
    way.seal(6)
    job = way.enqueue()  # at height 7: readable from 8 on
    way.match()
    way.complete(job)
    way.do(RollBack(Height(2)))
    way.seal()
    found, result = way.state.queue.jobs[job], way.state.results[job]
    assert (result.height_resolved, way.state.open_height) == (3, 4)
    for open_height, is_readable in ((4, False), (7, False), (8, True)):
        no = why_not_readable(found, result, Height(open_height))
        assert (no is None) == is_readable
    assert name_of(way.consume(job)) == "NoResultYet"
    way.seal(4)
    assert isinstance(done(way.consume(job)), ResultConsumed)
    way.do(RollBack(Height(5)))  # the result stays in block 3, but the head is below the promise again
    assert not way.state.consumptions


@pytest.mark.rule("RES-005", "ENG-003")
def test_a_snapshot_between_consumption_and_finality_goes_on_like_the_state_it_was_taken_of() -> None:
    way, job = resolved(at=2, blocks=1)
    way.consume(job)
    way.seal(2)
    other = Way(restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)[0])
    other.rows, other.now_ms = way.rows, way.now_ms
    for each in (way, other):
        each.do(RollBack(Height(2)))
        each.seal(20)
        assert name_of(each.consume(job, tx=9)) == "AlreadyConsumed"
    assert digest(other.state) == digest(way.state)


@pytest.mark.rule("CAN-005")
def test_a_history_without_consumptions_folds_to_what_it_was() -> None:
    """The part is empty, so it adds nothing to the digest."""
    way, _ = resolved(blocks=3)
    again = State(way.state.policy)
    for event in way.events:
        law.apply(again, event)
    assert digest(again) == digest(way.state)
    assert not again.consumptions
    assert EventNo(len(way.events)) == again.last_event
