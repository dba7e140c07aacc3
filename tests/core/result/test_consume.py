"""Using a result: once, by whom it was made for, when it is readable; and what a reorg does to that."""

from __future__ import annotations

import pytest
from tests.core.core_driver import ALICE, CoreDriver

from holdfast.core import state_machine
from holdfast.core.base.canonical import decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event, JournalHead
from holdfast.core.base.values import AccountId, EventNo, Height, TaskId
from holdfast.core.chain.messages import RollBackBlocks, TransactionsReincluded
from holdfast.core.chain.model import TxKind, tx_leaf
from holdfast.core.queue.messages import CancelJob
from holdfast.core.result.messages import ConsumptionDropped, ResultConsumed
from holdfast.core.result.readability import why_not_readable
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

BOB = AccountId("bob")


def resolved(at: int = 2, blocks: int = 0) -> tuple[CoreDriver, TaskId]:
    """A result in the block of this height, and so many blocks on it."""
    core = CoreDriver()
    core.funded()
    core.provider()
    job = core.enqueue()
    core.seal(at - 1)
    core.match()
    core.complete(job)
    core.seal(blocks)
    return core, job


def name_of(outcome: object) -> str:
    assert isinstance(outcome, Refused), outcome
    return outcome.name


def done(outcome: object) -> Event:
    assert isinstance(outcome, tuple), outcome
    assert len(outcome) == 1
    return outcome[0]  # type: ignore[no-any-return]


@pytest.mark.rule("RES-005", "CHN-001")
def test_a_result_is_consumed_once_in_a_transaction_of_the_chain() -> None:
    core, job = resolved(at=2, blocks=1)
    event = done(core.consume(job, tx=1))
    assert isinstance(event, ResultConsumed)
    assert (event.caller, event.height, event.result) == (ALICE, 3, core.state.results[job].event)
    (tx,) = core.state.chain.open.txs
    assert (tx.kind, tx.subject, tx.number) == (TxKind.CONSUMPTION, job, core.state.last_event)
    assert decode(tx_leaf(tx.kind, tx.number, tx.subject, event.tx_hash))[0] == "consumption"  # type: ignore[index]
    assert core.consume(job, tx=1) == ()  # the same transaction again
    assert name_of(core.consume(job, tx=2)) == "AlreadyConsumed"
    core.seal()
    assert name_of(core.consume(job, tx=2)) == "AlreadyConsumed"


@pytest.mark.rule("RES-005")
def test_only_the_jobs_caller_may_consume_and_learns_no_more_than_that() -> None:
    core, job = resolved(blocks=1)
    assert name_of(core.consume(job, caller=BOB)) == "Forbidden"
    core.seal(20)
    assert job not in core.state.results
    assert name_of(core.consume(job, caller=BOB)) == "Forbidden"
    pending = core.enqueue(nonce=2)
    assert name_of(core.consume(pending, caller=BOB)) == "Forbidden"


@pytest.mark.rule("RES-002", "RES-005", "RES-007")
def test_what_cannot_be_read_cannot_be_consumed() -> None:
    core, job = resolved(at=2)
    assert name_of(core.consume(job)) == "NoResultYet"  # block 2 is open
    core.seal()
    assert isinstance(done(core.consume(job)), ResultConsumed)
    waiting = core.enqueue(nonce=2)
    assert name_of(core.consume(waiting)) == "NoResultYet"
    core.do(CancelJob(waiting))
    assert name_of(core.consume(waiting)) == "Cancelled"
    assert name_of(core.consume(TaskId(bytes(32)))) == "NotFound"


@pytest.mark.rule("RES-005", "ENG-005")
def test_a_result_that_is_only_a_row_is_consumed_once_too_and_for_ever() -> None:
    core, job = resolved(blocks=20)
    assert (job in core.state.results, job in core.state.queue.jobs) == (False, False)
    assert isinstance(done(core.consume(job, tx=1)), ResultConsumed)
    assert name_of(core.consume(job, tx=2)) == "AlreadyConsumed"
    core.seal(20)
    assert not core.state.consumptions
    assert name_of(core.consume(job, tx=2)) == "AlreadyConsumed"
    assert core.consume(job, tx=1) == ()  # whoever did it is told so, for ever
    assert name_of(core.consume(job, tx=1, caller=BOB)) == "AlreadyConsumed"


@pytest.mark.rule("RES-005", "CHN-004")
def test_a_reorg_above_the_result_undoes_the_consumption_and_sets_it_again_at_the_new_height() -> None:
    core, job = resolved(at=2, blocks=3)
    core.consume(job)  # in block 5
    core.seal(2)
    assert core.state.consumptions[job].height == 5
    events = core.do(RollBackBlocks(Height(3)))
    assert isinstance(events[-1], TransactionsReincluded)
    assert core.state.consumptions[job].height == 4
    assert name_of(core.consume(job, tx=2)) == "AlreadyConsumed"
    core.seal(20)
    assert name_of(core.consume(job, tx=2)) == "AlreadyConsumed"


@pytest.mark.rule("RES-005", "RES-006")
def test_the_consumption_is_gone_with_its_block_before_anything_is_included_again() -> None:
    core, job = resolved(at=2, blocks=3)
    core.consume(job)  # in block 5
    core.seal()
    decided = state_machine.decide(core.state, RollBackBlocks(Height(4)), core.now_ms)
    assert isinstance(decided, Decided)
    *undone, again = decided.events
    for event in undone:
        state_machine.apply(core.state, event)
    assert core.state.consumptions[job].height == 0
    state_machine.apply(core.state, again)
    assert core.state.consumptions[job].height == 5


@pytest.mark.rule("RES-002", "RES-005", "RES-006")
def test_a_reorg_that_takes_the_result_too_drops_the_consumption_since_nobody_could_read_it_there() -> None:
    core, job = resolved(at=2, blocks=2)
    core.consume(job, tx=1)
    core.seal()
    *_, last, dropped = core.do(RollBackBlocks(Height(1)))
    assert isinstance(last, TransactionsReincluded)
    assert isinstance(dropped, ConsumptionDropped)
    assert (dropped.task_id, dropped.caller) == (job, ALICE)
    assert not core.state.consumptions
    assert name_of(core.consume(job, tx=1)) == "NoResultYet"
    core.seal()
    assert isinstance(done(core.consume(job, tx=1)), ResultConsumed)  # the same transaction, in a block where it counts
    core.seal(20)
    assert name_of(core.consume(job, tx=2)) == "AlreadyConsumed"


@pytest.mark.rule("RES-005", "CHN-004")
def test_a_consumption_that_was_dropped_stays_without_effect_in_every_later_reorg() -> None:
    core, job = resolved(at=2, blocks=1)
    core.consume(job, tx=1)
    core.do(RollBackBlocks(Height(1)))  # both in block 2 now: the consumption does not count
    core.seal()
    core.consume(job, tx=2)  # in block 3
    core.seal()
    core.do(RollBackBlocks(Height(2)))
    assert core.state.consumptions[job].height == 3
    kinds = [tx.kind for tx in core.state.chain.unfinalized[Height(2)].txs]
    assert kinds.count(TxKind.CONSUMPTION) == 1
    core.do(RollBackBlocks(Height(1)))
    assert not core.state.consumptions
    core.seal(20)
    assert isinstance(done(core.consume(job, tx=3)), ResultConsumed)


@pytest.mark.rule("RES-002")
def test_where_a_reorg_brings_the_head_below_the_receipt_nobody_reads_before_the_height_it_promised() -> None:
    core = CoreDriver()
    core.funded()
    core.provider()
    core.seal(6)
    job = core.enqueue()  # at height 7: readable from 8 on
    core.match()
    core.complete(job)
    core.do(RollBackBlocks(Height(2)))
    core.seal()
    found, result = core.state.queue.jobs[job], core.state.results[job]
    assert (result.height_resolved, core.state.open_height) == (3, 4)
    for open_height, is_readable in ((4, False), (7, False), (8, True)):
        no = why_not_readable(found, result, Height(open_height))
        assert (no is None) == is_readable
    assert name_of(core.consume(job)) == "NoResultYet"
    core.seal(4)
    assert isinstance(done(core.consume(job)), ResultConsumed)
    core.do(RollBackBlocks(Height(5)))  # the result stays in block 3, but the head is below the promise again
    assert not core.state.consumptions


@pytest.mark.rule("RES-005", "ENG-003")
def test_a_snapshot_between_consumption_and_finality_goes_on_like_the_state_it_was_taken_of() -> None:
    core, job = resolved(at=2, blocks=1)
    core.consume(job)
    core.seal(2)
    other = CoreDriver(restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)[0])
    other.rows, other.now_ms = core.rows, core.now_ms
    for each in (core, other):
        each.do(RollBackBlocks(Height(2)))
        each.seal(20)
        assert name_of(each.consume(job, tx=9)) == "AlreadyConsumed"
    assert digest(other.state) == digest(core.state)


@pytest.mark.rule("CAN-005")
def test_a_history_without_consumptions_folds_to_what_it_was() -> None:
    """The part is empty, so it adds nothing to the digest."""
    core, _ = resolved(blocks=3)
    again = State(core.state.policy)
    for event in core.events:
        state_machine.apply(again, event)
    assert digest(again) == digest(core.state)
    assert not again.consumptions
    assert EventNo(len(core.events)) == again.last_event
