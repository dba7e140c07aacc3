"""A rollback in steps: the same end as one decision, whatever else is decided between two steps."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.blocks import SEAL, START_MS, ChainRun, final_after, job_of, rich, sealed, signed_head, verify
from tests.core.blocks import Step as ChainStep
from tests.core.blocks import steps as chain_steps
from tests.core.commands import done, enqueue_command, refused, some_id
from tests.core.core_driver import CoreDriver
from tests.core.histories.test_core_histories import STEPS, step_sequences, transactions, violated_invariants
from tests.counts import counts

from holdfast.core import state_machine
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Decided, Event, JournalHead
from holdfast.core.base.values import AccountId, Amount, EventNo, Height, Network, TaskId
from holdfast.core.chain.header import genesis_signed, why_not_next
from holdfast.core.chain.messages import (
    BlockRolledBack,
    ContinueRollback,
    RollBackBlocks,
    RollbackFinished,
    RollbackStarted,
    TransactionsReincluded,
    TransactionsUnlinked,
)
from holdfast.core.chain.model import BlockStatus, final_height
from holdfast.core.escrow.messages import Charge, Finalize, Refund, Reserve, RollBackSettlements
from holdfast.core.escrow.model import Account, ReservationStatus
from holdfast.core.invariants import broken_invariants
from holdfast.core.job.model import JobState
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.queue.messages import CancelJob
from holdfast.core.result.messages import ConsumptionDropped, ResultConsumed
from holdfast.core.result.model import ResultStatus
from holdfast.core.result.readability import why_not_readable
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

ALICE = AccountId("alice")
limits = st.integers(1, 12)


class SteppingCore(CoreDriver):
    """A core whose blocks wait while a rollback runs."""

    def __init__(self) -> None:
        super().__init__()
        self.funded(amount=5_000)
        self.provider(1, slots=2)
        self.provider(2, slots=3)
        self.seal()

    def seal(self, times: int = 1, how: object = SEAL) -> None:
        for _ in range(times):
            outcome = self.ask(SEAL)
            is_held_back = isinstance(outcome, Refused)
            assert is_held_back == (self.state.chain.rollback is not None), outcome

    def start(self, height: int) -> None:
        self.do(RollBackBlocks(Height(height), at_once_max=0))

    def finish(self, limit: int = 3) -> list[Event]:
        events: list[Event] = []
        while self.state.chain.rollback is not None:
            events += self.do(ContinueRollback(limit))
            assert broken_invariants(self.state) == []
        return events


def lived(life: list[tuple[int, int]]) -> SteppingCore:
    core = SteppingCore()
    for step, pick in life:
        STEPS[step](core, pick)
    return core


def facts(state: State) -> bytes:
    """The digest without event numbers: steps need other events than one decision."""
    copy, _ = restore(snapshot(state, JournalHead(last=state.last_event)), state.policy)
    copy.last_event = EventNo(0)
    for reservation in copy.ledger.reservations.values():
        reservation.settled = None if reservation.settled is None else EventNo(1)
    return digest(copy)


# ------------------------------------------------------------------------------------------------ the same end


@pytest.mark.rule("CHN-003", "CHN-004", "RES-006", "ESC-002")
@settings(max_examples=counts(40, 2_000), deadline=None)
@given(step_sequences, st.integers(0, 9), limits)
def test_steps_end_where_one_decision_ends_and_where_block_after_block_ends(
    life: list[tuple[int, int]], pick: int, limit: int
) -> None:
    in_steps, at_once, one_by_one = lived(life), lived(life), lived(life)
    head, final = in_steps.state.chain.head.height, final_height(in_steps.state)
    to = final + pick % (head - final + 1)
    in_steps.start(to)
    in_steps.finish(limit)
    at_once.do(RollBackBlocks(Height(to), at_once_max=10**9))
    for height in range(head - 1, to - 1, -1):
        one_by_one.do(RollBackBlocks(Height(height), at_once_max=10**9))
    assert facts(in_steps.state) == facts(at_once.state) == facts(one_by_one.state)
    assert violated_invariants(in_steps) == []


@pytest.mark.rule("CHN-003", "CHN-004", "RES-006", "ESC-001")
@settings(max_examples=counts(60, 3_000), deadline=None)
@given(
    step_sequences, st.integers(0, 9), st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 11), limits))
)
def test_whatever_is_decided_between_steps_nothing_is_lost_and_nothing_is_there_twice(
    life: list[tuple[int, int]], pick: int, between: list[tuple[int, int, int]]
) -> None:
    core = lived(life)
    head, final = core.state.chain.head.height, final_height(core.state)
    core.start(final + pick % (head - final + 1))
    for step, choice, limit in between:
        STEPS[step](core, choice)
        assert broken_invariants(core.state) == []
        assert all(count == 1 for count in known_transactions(core).values())
        core.do(ContinueRollback(limit))
        assert broken_invariants(core.state) == []
    core.finish()
    assert violated_invariants(core) == []
    assert all(count == 1 for count in transactions(core).values())
    again = State(core.state.policy)
    for event in core.events:
        state_machine.apply(again, event)
    assert digest(again) == digest(core.state)


def known_transactions(core: CoreDriver) -> Counter[int]:
    chain = core.state.chain
    pool = chain.rollback.pool if chain.rollback is not None else []
    blocks = [block.txs for block in chain.unfinalized.values()]
    return Counter(tx.number for txs in (*blocks, chain.open.txs, pool) for tx in txs)


@pytest.mark.rule("CHN-003", "CHN-004", "CHN-006")
@settings(max_examples=counts(60, 1_500))
@given(st.lists(chain_steps, min_size=12, max_size=40), st.integers(0, 7), st.lists(chain_steps, max_size=20), limits)
def test_the_naive_chain_has_the_same_transactions_in_the_same_order_and_the_same_headers(
    past: list[ChainStep], depth: int, between: list[ChainStep], limit: int
) -> None:
    life = ChainRun(final_after(5))
    for step in past:
        life.run_step(step)
    height = max(final_height(life.state), life.state.chain.head.height - depth)
    life.do(RollBackBlocks(Height(height), at_once_max=0))
    for step in between:
        life.run_step(step)
        life.do(ContinueRollback(limit))
        assert all_known(life) == life.transactions()
    while life.state.chain.rollback is not None:
        life.do(ContinueRollback(limit))
    before = signed_head(life.state)
    assert [tx.number for tx in life.state.chain.open.txs] == [tx.number for tx in life.naive.open]
    life.run_step(ChainStep("seal"))  # the naive chain computes the same header, else it fails
    assert why_not_next(before, signed_head(life.state), verify) is None
    assert life.active() == life.transactions()


def all_known(life: ChainRun) -> list[int]:
    rollback = life.state.chain.rollback
    return life.active() + [tx.number for tx in (rollback.pool if rollback is not None else [])]


@pytest.mark.rule("CHN-006", "ENG-003")
@settings(max_examples=counts(40, 800), deadline=None)
@given(step_sequences, st.integers(0, 9), st.integers(0, 30), limits)
def test_a_snapshot_between_two_steps_goes_on_like_the_original(
    life: list[tuple[int, int]], pick: int, cut: int, limit: int
) -> None:
    core = lived(life)
    head, final = core.state.chain.head.height, final_height(core.state)
    core.start(final + pick % (head - final + 1))
    for _ in range(cut):
        core.do(ContinueRollback(limit))
    copy, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    assert digest(copy) == digest(core.state)
    twin = CoreDriver(copy)
    while twin.state.chain.rollback is not None:
        assert twin.do(ContinueRollback(limit)) == core.do(ContinueRollback(limit))
    assert digest(twin.state) == digest(core.state)


# ------------------------------------------------------------------------------------------------ the steps


def chain_of(blocks: int, each: int, depth: int = 100) -> State:
    """Blocks with so many cancelled jobs each; the money of all of them is pending."""
    state = done(rich(depth), enqueue_command(0, max_fee=1), START_MS)
    for nonce in range(blocks * each):
        done(state, enqueue_command(1 + nonce, max_fee=1), START_MS)
        done(state, CancelJob(job_of(state)), START_MS)
        if nonce % each == each - 1:
            sealed(state)
    return state


def all_events(state: State, limit: int) -> list[tuple[Event, ...]]:
    steps = []
    while state.chain.rollback is not None:
        decided = state_machine.decide(state, ContinueRollback(limit), START_MS)
        assert isinstance(decided, Decided)
        for event in decided.events:
            state_machine.apply(state, event)
            assert broken_invariants(state) == [], event
        steps.append(decided.events)
    return steps


@pytest.mark.rule("CHN-003")
@pytest.mark.parametrize(("at_once_max", "is_in_steps"), [(7, True), (8, False)])
def test_a_rollback_goes_in_steps_when_it_is_larger_than_one_decision_may_be(
    at_once_max: int, is_in_steps: bool
) -> None:
    state = chain_of(2, 1)  # three transactions and two blocks more: 2 + 3 + 2, and one waits in the open block
    done(state, enqueue_command(50, max_fee=1), START_MS)
    decided = state_machine.decide(state, RollBackBlocks(Height(0), at_once_max=at_once_max), START_MS)
    assert isinstance(decided, Decided)
    assert isinstance(decided.events[0], RollbackStarted) is is_in_steps
    assert (len(decided.events) == 1) is is_in_steps


@pytest.mark.rule("CHN-003", "RES-006")
def test_each_block_is_rolled_back_with_all_its_effects_in_one_batch_from_the_top_down() -> None:
    state = chain_of(3, 2)
    names = [state.chain.unfinalized[Height(height)].block.hash for height in (1, 2, 3)]
    done(state, RollBackBlocks(Height(1), at_once_max=0), START_MS)
    first, *steps = all_events(state, limit=4)
    assert first == (TransactionsUnlinked(4),)  # the open block, which is empty
    assert steps == [
        (BlockRolledBack(Height(3), names[2]), TransactionsUnlinked(4)),
        (BlockRolledBack(Height(2), names[1]), TransactionsUnlinked(4)),
        (TransactionsReincluded(Height(2), 8), RollbackFinished(Height(1))),
    ]


@pytest.mark.rule("RES-006", "ESC-002")
def test_a_fuller_block_leaves_the_chain_at_once_and_its_effects_are_undone_in_parts() -> None:
    state = chain_of(1, 10)
    hash_ = state.chain.head.hash
    assert state.ledger.accounts[ALICE] == Account(ALICE, 89, 1, 10)
    done(state, RollBackBlocks(Height(0), at_once_max=0), START_MS)
    _, *steps = all_events(state, limit=8)
    assert steps[:3] == [
        (BlockRolledBack(Height(1), hash_), TransactionsUnlinked(8)),
        (TransactionsUnlinked(8),),
        (TransactionsUnlinked(8),),
    ]
    assert state.ledger.accounts[ALICE] == Account(ALICE, 89, 1, 10)


@pytest.mark.rule("CHN-003", "ESC-002")
def test_money_of_a_block_moves_back_part_by_part_and_then_forward_again() -> None:
    state = chain_of(1, 10)
    done(state, RollBackBlocks(Height(0), at_once_max=0), START_MS)
    done(state, ContinueRollback(100), START_MS)
    pending = []
    for _ in range(9):
        done(state, ContinueRollback(6), START_MS)
        pending.append(state.ledger.accounts[ALICE].pending)
    assert pending == [4, 0, 0, 0, 6, 10, 10, 10, 10]
    assert state.chain.rollback is None
    assert len(state.chain.open.txs) == 21


@pytest.mark.rule("CHN-003")
def test_empty_blocks_are_rolled_back_several_in_a_step() -> None:
    state = rich(100)
    for _ in range(9):
        sealed(state)
    done(state, RollBackBlocks(Height(0), at_once_max=0), START_MS)
    _, *steps = all_events(state, limit=64)
    assert [sum(isinstance(event, BlockRolledBack) for event in step) for step in steps] == [4, 4, 1, 0]


@pytest.mark.rule("CHN-004")
def test_a_step_includes_more_admissions_than_transactions_with_an_effect() -> None:
    state = rich(100)
    for nonce in range(20):
        done(state, enqueue_command(nonce, max_fee=1), START_MS)
    sealed(state)
    done(state, RollBackBlocks(Height(0), at_once_max=0), START_MS)
    steps = all_events(state, limit=4)
    counted = [event.count for step in steps for event in step if isinstance(event, TransactionsReincluded)]
    assert counted == [16, 4]


# ------------------------------------------------------------------------------------------------ in between


@pytest.mark.rule("CHN-003", "RES-006")
def test_from_the_start_on_the_head_is_the_block_it_returns_to() -> None:
    state = chain_of(5, 1)
    kept = state.chain.unfinalized[Height(2)].block
    done(state, RollBackBlocks(Height(2), at_once_max=0), START_MS)
    assert (state.chain.head, state.open_height) == (kept, 3)
    while state.chain.rollback is not None:
        done(state, ContinueRollback(1), START_MS)
        assert (state.chain.head, state.open_height) == (kept, 3)
    assert why_not_next(signed_head(state), sealed(state, START_MS + 1), verify) is None


@pytest.mark.rule("CHN-003")
def test_a_block_is_orphaned_by_the_event_that_names_it() -> None:
    state = chain_of(3, 1)
    rows = {height: sealed_.block for height, sealed_ in state.chain.unfinalized.items()}
    done(state, RollBackBlocks(Height(1), at_once_max=0), START_MS)
    for event in (event for step in all_events(state, limit=1) for event in step):
        if isinstance(event, BlockRolledBack):
            assert rows[event.height].status is BlockStatus.ORPHANED
    assert [block.status for block in rows.values()] == ["SEALED", "ORPHANED", "ORPHANED"]


@pytest.mark.rule("RES-002", "RES-006")
def test_no_result_above_the_target_is_readable_at_any_step_and_each_is_again_after_later_blocks() -> None:
    core = SteppingCore()
    jobs = [finished(core, nonce) for nonce in range(6)]
    core.start(1)
    while core.state.chain.rollback is not None:
        assert [readable(core, job) for job in jobs] == ["NoResultYet"] * 6
        core.do(ContinueRollback(1))
    assert [readable(core, job) for job in jobs] == ["NoResultYet"] * 6
    core.seal()
    assert readable(core, jobs[0]) == ""
    core.seal(6)  # the receipts of the others allow reading from a later height on
    assert [readable(core, job) for job in jobs] == [""] * 6


def finished(core: CoreDriver, nonce: int) -> TaskId:
    """A job whose result is in a block of its own."""
    job = core.enqueue(nonce)
    core.match()
    core.complete(job, b"out %d" % nonce)
    core.seal()
    return job


def readable(core: CoreDriver, job: TaskId) -> str:
    refusal = why_not_readable(core.state.queue.jobs[job], core.state.results.get(job), core.state.open_height)
    return refusal.name if refusal is not None else ""


@pytest.mark.rule("CHN-004", "PRF-003")
def test_a_proof_accepted_meanwhile_completes_its_job_and_is_resolved_behind_the_others() -> None:
    core = SteppingCore()
    old = finished(core, 1)
    young = core.enqueue(2)
    core.match()
    core.submit(young)
    core.start(1)
    core.record_verdict(young)
    assert core.state.queue.jobs[young].state is JobState.COMPLETED
    assert core.state.results[young].status is ResultStatus.UNLINKED
    assert core.state.ledger.reservations[young].status is ReservationStatus.HELD  # type: ignore[index]
    core.finish()
    results = core.state.results
    assert [(results[job].height_resolved, results[job].leaf_index) for job in (old, young)] == [(2, 0), (2, 1)]


@pytest.mark.rule("CHN-004", "ESC-001")
def test_a_job_cancelled_meanwhile_is_refunded_in_the_block_that_includes_it() -> None:
    state = chain_of(3, 1)
    job = next(iter(state.queue.jobs))
    done(state, RollBackBlocks(Height(1), at_once_max=0), START_MS)
    done(state, CancelJob(job), START_MS)
    assert (state.queue.jobs[job].state, state.queue.jobs[job].settled_height) == (JobState.CANCELLED, None)
    assert state.ledger.accounts[ALICE].held == 1
    all_events(state, limit=2)
    assert (state.queue.jobs[job].settled_height, state.ledger.accounts[ALICE].held) == (2, 0)


@pytest.mark.rule("CHN-002", "JOB-001")
def test_a_job_admitted_meanwhile_has_the_height_of_the_block_that_includes_it() -> None:
    state = chain_of(5, 1)
    done(state, RollBackBlocks(Height(2), at_once_max=0), START_MS)
    done(state, enqueue_command(77, max_fee=1), START_MS)
    job = state.queue.jobs[job_of(state)]
    all_events(state, limit=1)
    assert job.height == 3
    assert state.chain.open.txs[-1].number == job.event


@pytest.mark.rule("RES-005", "RES-006")
def test_a_use_in_a_later_step_is_dropped_with_its_result_and_one_below_the_target_stays() -> None:
    core = SteppingCore()
    low, high = finished(core, 1), finished(core, 2)  # in blocks 2 and 3
    for job in (low, high):
        core.consume(job)
    core.seal()
    core.start(2)
    dropped = [event for event in core.finish(1) if isinstance(event, ConsumptionDropped)]
    assert [event.task_id for event in dropped] == [high]
    assert core.state.consumptions[low].height == 3
    core.seal()
    used = core.consume(high, tx=2)
    assert isinstance(used, tuple)
    assert isinstance(used[0], ResultConsumed)


@pytest.mark.rule("RES-005")
def test_a_use_while_the_rollback_runs_is_in_the_open_block_at_its_end() -> None:
    core = SteppingCore()
    low, high = finished(core, 1), finished(core, 2)
    core.start(2)
    assert isinstance(core.consume(low), tuple)
    no = core.consume(high)
    assert isinstance(no, Refused)
    assert no.name == "NoResultYet"
    assert core.finish(1)[-1] == RollbackFinished(Height(2))
    assert core.state.consumptions[low].height == 3


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.rule("CHN-003", "CHN-004")
def test_what_moves_blocks_or_their_money_waits_for_the_end() -> None:
    state = chain_of(3, 1)
    done(state, Reserve(some_id(7), ALICE, Amount(1)), START_MS)
    done(state, RollBackBlocks(Height(1), at_once_max=0), START_MS)
    settle = (Charge(some_id(7), Height(0), ALICE, Amount(1)), Refund(some_id(7), Height(0)))
    held_back = (SEAL, *settle, Finalize(Height(1)), RollBackSettlements(Height(1)), RollBackBlocks(Height(0)))
    for command in (*held_back, RollBackBlocks(Height(3))):
        no = refused(state, command)
        assert (no.rule, no.name, no.message) == ("CHN-003", "RollbackRunning", "a rollback to block 1 is running")
    all_events(state, limit=3)
    done(state, Refund(some_id(7), Height(0)), START_MS)
    sealed(state)


@pytest.mark.rule("CHN-003")
def test_the_same_rollback_again_is_the_one_that_runs() -> None:
    state = chain_of(3, 1)
    done(state, RollBackBlocks(Height(1), at_once_max=0), START_MS)
    started = state.last_event
    done(state, enqueue_command(77, max_fee=1), START_MS)
    again = state_machine.decide(state, RollBackBlocks(Height(1)), START_MS)
    assert again == Decided((), repeat_of=started)


@pytest.mark.rule("CHN-005")
def test_a_rollback_below_what_is_final_is_refused_also_while_one_runs() -> None:
    state = chain_of(5, 1, depth=2)
    done(state, RollBackBlocks(Height(4), at_once_max=0), START_MS)
    assert refused(state, RollBackBlocks(Height(2))).rule == "CHN-005"


@pytest.mark.rule("CHN-003")
def test_without_a_rollback_there_is_nothing_to_continue() -> None:
    state = chain_of(1, 1)
    assert state_machine.decide(state, ContinueRollback(), START_MS) == Decided((), repeat_of=state.last_event)


@pytest.mark.rule("CHN-006")
def test_a_policy_adopted_in_the_middle_of_a_rollback_to_genesis_leaves_the_chain_alone() -> None:
    state = chain_of(2, 1)
    done(state, RollBackBlocks(Height(0), at_once_max=0), START_MS)
    before = len(all_known_numbers(state))
    done(state, AdoptPolicy(state.policy), START_MS)
    assert len(all_known_numbers(state)) == before
    all_events(state, limit=2)
    assert len(state.chain.open.txs) == before
    assert why_not_next(genesis_signed(state.policy.chain_id, Network.DEVELOPMENT), sealed(state), verify) is None  # type: ignore[arg-type]


def all_known_numbers(state: State) -> list[int]:
    rollback = state.chain.rollback
    assert rollback is not None
    blocks = [tx.number for block in state.chain.unfinalized.values() for tx in block.txs]
    return [*blocks, *(tx.number for tx in state.chain.open.txs), *(tx.number for tx in rollback.pool)]


@pytest.mark.rule("CHN-004")
@pytest.mark.parametrize(
    "lie",
    [
        TransactionsReincluded(Height(1), 1),
        TransactionsReincluded(Height(1), 4),
        TransactionsReincluded(Height(2), 3),
        RollbackFinished(Height(0)),
    ],
)
def test_a_history_whose_steps_do_not_fit_is_corrupt(lie: Event) -> None:
    state = chain_of(1, 1)
    done(state, RollBackBlocks(Height(0), at_once_max=0), START_MS)
    state_machine.apply(state, BlockRolledBack(Height(1), state.chain.unfinalized[Height(1)].block.hash))
    if lie != TransactionsReincluded(Height(1), 1):
        state_machine.apply(state, TransactionsUnlinked(9))
    with pytest.raises(Corrupt, match="CHN-004"):
        state_machine.apply(state, lie)
