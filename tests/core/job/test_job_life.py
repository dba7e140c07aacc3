"""The life of a job before anybody works on it: cancelled, raised, and who may do that, each act under a name."""

from __future__ import annotations

import pytest
from tests.core.blocks import SEAL, START_MS
from tests.core.commands import DEVELOPMENT, admitted, done, enqueue_command, funded, refused, run, some_id
from tests.core.reachable_states import unreachable_states

from holdfast.core import state_machine
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import Decided
from holdfast.core.base.fsm import next_state
from holdfast.core.base.privileged import PrivilegedActRecorded, PrivilegedCommand
from holdfast.core.base.values import AccountId, Amount, Height, TaskId
from holdfast.core.escrow.messages import Charge, Mint, Refund
from holdfast.core.escrow.model import Account
from holdfast.core.job.model import JOB_TRANSITIONS, JobState, JobTransition
from holdfast.core.queue.apply import transition
from holdfast.core.queue.messages import CancelJob, FeeRaised, JobCancelled, RaiseFee
from holdfast.core.state import State

ALICE, BOB = AccountId("alice"), AccountId("bob")


@pytest.mark.rule("JOB-008", "ESC-001", "ESC-002")
def test_cancelling_gives_the_money_back_when_its_block_is_final() -> None:
    state = funded(100)
    job = admitted(state, enqueue_command(max_fee=60), START_MS)
    done(state, CancelJob(job.id, ALICE), START_MS + 5)
    ended = state.queue.jobs[job.id]
    assert (ended.state, ended.reason, ended.ended_ms) == (JobState.CANCELLED, "CANCELLED", START_MS + 5)
    assert state.ledger.accounts[ALICE] == Account(ALICE, 40, 0, 60)
    assert refused(state, enqueue_command(2, max_fee=41)).name == "InsufficientFunds"
    assert (state.queue.depth, state.queue.in_flight) == (0, {})
    for _ in range(DEVELOPMENT.chain.finality_depth + 1):
        done(state, SEAL, START_MS)
    assert state.ledger.accounts[ALICE] == Account(ALICE, 100, 0, 0)


@pytest.mark.rule("JOB-007", "JOB-008")
def test_what_has_ended_is_neither_cancelled_nor_raised() -> None:
    state = funded()
    job = admitted(state, enqueue_command(), START_MS)
    done(state, CancelJob(job.id), START_MS)
    assert "CANCELLED is final" in refused(state, CancelJob(job.id)).message
    assert "CANCELLED is final" in refused(state, RaiseFee(job.id, Amount(99))).message
    assert refused(state, CancelJob(TaskId(bytes(32)))).name == "NotFound"
    assert refused(state, RaiseFee(TaskId(bytes(32)), Amount(99))).name == "NotFound"


@pytest.mark.rule("SEC-001", "JOB-008")
def test_nobody_cancels_or_raises_for_somebody_else_but_an_operator() -> None:
    state = funded()
    job = admitted(state, enqueue_command(), START_MS)
    assert refused(state, CancelJob(job.id, BOB)).name == "Forbidden"
    assert refused(state, RaiseFee(job.id, Amount(99), BOB)).name == "Forbidden"
    done(state, RaiseFee(job.id, Amount(99), None), START_MS)
    done(state, CancelJob(job.id, None), START_MS)


@pytest.mark.rule("JOB-008", "PRI-002")
def test_a_raised_fee_is_set_aside_and_ranks_the_job_as_if_it_had_always_been_so() -> None:
    state, other = funded(100), funded(100)
    job = admitted(state, enqueue_command(max_fee=20), START_MS)
    done(state, RaiseFee(job.id, Amount(70), ALICE), START_MS + 99)
    raised = state.queue.jobs[job.id]
    assert state.ledger.accounts[ALICE] == Account(ALICE, 30, 70, 0)
    assert (raised.max_fee, raised.priority) == (70, admitted(other, enqueue_command(max_fee=70), START_MS).priority)
    assert raised.id == job.id
    done(state, CancelJob(job.id, ALICE), START_MS)
    assert state.ledger.accounts[ALICE] == Account(ALICE, 30, 0, 70)


@pytest.mark.rule("JOB-008")
@pytest.mark.parametrize(
    ("fee", "outcome"), [(19, "Refused"), (20, ""), (21, ""), (100, ""), (101, "InsufficientFunds")]
)
def test_a_fee_is_raised_by_what_is_available_and_never_lowered(fee: int, outcome: str) -> None:
    state = funded(100)
    job = admitted(state, enqueue_command(max_fee=20), START_MS)
    if outcome:
        assert refused(state, RaiseFee(job.id, Amount(fee))).name == outcome
        return
    events = run(state, RaiseFee(job.id, Amount(fee)), START_MS)
    assert events == (() if fee == 20 else (FeeRaised(job.id, Amount(fee), state.queue.jobs[job.id].priority),))


@pytest.mark.rule("ESC-001")
def test_the_money_of_a_job_is_settled_by_its_end_and_by_no_other_command() -> None:
    state = funded()
    job = admitted(state, enqueue_command(), START_MS)
    assert "belongs to a job" in refused(state, Refund(job.id, Height(0))).message  # type: ignore[arg-type]
    assert "belongs to a job" in refused(state, Charge(job.id, Height(0), BOB, Amount(1))).message  # type: ignore[arg-type]


@pytest.mark.rule("JOB-007")
def test_the_life_of_a_job_is_one_table_in_which_every_state_can_be_reached() -> None:
    assert unreachable_states(JOB_TRANSITIONS, JobState.QUEUED) == frozenset()
    assert set(JOB_TRANSITIONS) == set(JobState)
    ends = {state for state, arrows in JOB_TRANSITIONS.items() if not arrows}
    assert ends == {JobState.COMPLETED, JobState.EXPIRED, JobState.CANCELLED}


@pytest.mark.rule("JOB-007")
def test_a_step_that_is_not_in_the_table_is_corrupt_and_every_other_keeps_the_count() -> None:
    for before in JobState:
        for act in JobTransition:
            state = funded()
            job = state.queue.jobs[admitted(state, enqueue_command(), START_MS).id]
            _bring(state, job.id, before)
            if next_state(JOB_TRANSITIONS, before, act) is None:
                with pytest.raises(Corrupt, match="JOB-007"):
                    transition(state, [job], act)
            else:
                transition(state, [job], act)
                assert state.queue.depth == (job.state in (JobState.QUEUED, JobState.ASSIGNED))


def _bring(state: State, id_: TaskId, goal: JobState) -> None:
    """Walk the table to a state."""
    ways = {
        JobState.QUEUED: [],
        JobState.ASSIGNED: [JobTransition.ASSIGN],
        JobState.COMPLETED: [JobTransition.ASSIGN, JobTransition.ACCEPT],
        JobState.EXPIRED: [JobTransition.EXPIRE],
        JobState.FAILED: [JobTransition.EXHAUST],
        JobState.CANCELLED: [JobTransition.CANCEL],
    }
    for act in ways[goal]:
        transition(state, [state.queue.jobs[id_]], act)


# ------------------------------------------------------------------------------------------------ acts by name


@pytest.mark.rule("SEC-001")
def test_a_privileged_act_is_recorded_before_what_was_done_in_one_decision() -> None:
    state = funded()
    job = admitted(state, enqueue_command(), START_MS)
    decided = state_machine.decide(
        state, PrivilegedCommand("0123456789abcdef", "cap.cancel", CancelJob(job.id)), START_MS
    )
    assert isinstance(decided, Decided)
    assert decided.events == (
        PrivilegedActRecorded("0123456789abcdef", "cap.cancel", 1),
        JobCancelled(job.id, "CANCELLED", START_MS),
    )
    assert decided.answer_index == 1


@pytest.mark.rule("SEC-001")
def test_what_changed_nothing_records_no_privileged_act() -> None:
    state = funded()
    job = admitted(state, enqueue_command(), START_MS)
    same = PrivilegedCommand("local", "cap.raiseFee", RaiseFee(job.id, Amount(10)))
    assert state_machine.decide(state, same, START_MS) == Decided((), repeat_of=state.last_event)
    assert refused(state, PrivilegedCommand("local", "cap.cancel", CancelJob(TaskId(bytes(32))))).name == "NotFound"


@pytest.mark.rule("SEC-001", "ENG-005")
def test_a_privileged_act_is_unique_where_its_command_is() -> None:
    state = funded()
    for command in (Mint(some_id(1), ALICE, Amount(1)), enqueue_command(1)):
        keys = state_machine.claim_keys(state, command)
        assert keys
        assert state_machine.claim_keys(state, PrivilegedCommand("local", "x", command)) == keys
