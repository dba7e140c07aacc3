"""Jobs that failed too often: put back with their fee reserved anew, whatever a reorg does; then their tombstones."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.books import refused
from tests.core.fleet import asked_for, exhausted, fleet, patient
from tests.core.ways import ALICE, Way

from holdfast.core.chain.acts import RollBack
from holdfast.core.escrow.books import HoldStatus
from holdfast.core.escrow.books import broken_laws as broken_money
from holdfast.core.job.record import FailedJob, JobState, hold_of, requeues_of, task_of
from holdfast.core.policy import AdmissionPolicy, RetryPolicy, TtlPolicy
from holdfast.core.queue.acts import Cancel
from holdfast.core.queue.books import broken_laws as broken_queue
from holdfast.core.queue.bury import Bury, Grave, JobsBuried
from holdfast.core.queue.requeue import JobRequeued, Requeue
from holdfast.core.refusal import Refused
from holdfast.core.values import Amount, Height, TaskId

HOUR_MS = 3_600_000
TTL_MS = {"AI": 24 * HOUR_MS, "QUANTUM": 2 * HOUR_MS}


def sound(way: Way) -> None:
    assert broken_money(way.state.ledger) == []
    assert broken_queue(way.state.queue, way.state.ledger) == []


# ------------------------------------------------------------------------------------------------ dead letters


def dead(depth: int = 12, **parts: msgspec.Struct) -> tuple[Way, TaskId]:
    way = fleet(2, policy=patient(depth, **parts), money=250)
    job = asked_for(way)
    exhausted(way, job)
    return way, job


@pytest.mark.rule("RTY-001")
def test_a_job_that_failed_too_often_is_a_dead_letter_that_says_what_failed_last() -> None:
    way, job = dead()
    found = way.state.queue.jobs[job]
    letter = FailedJob(found.event, job, found.kind, ALICE, 100, 6, 0, "PROVIDER_FAIL", way.now_ms)
    assert way.state.touched["failed_job"] == {found.event: letter}


@pytest.mark.rule("RTY-001", "LEA-001", "ESC-001")
def test_a_job_that_is_put_back_begins_anew_with_its_fee_reserved_once_more() -> None:
    way, job = dead()
    way.now_ms += 5_000
    (event,) = way.do(Requeue(job))
    assert isinstance(event, JobRequeued)
    found = way.state.queue.jobs[job]
    assert (found.state, found.failures, found.attempts, found.requeues) == (JobState.QUEUED, 0, 6, 1)
    assert (found.expires_ms, found.relative_expires_ms) == (way.now_ms + TTL_MS["AI"], None)
    assert (found.ended_ms, found.charged, found.settled_height, found.reason) == (None, None, None, "")
    account = way.state.ledger.accounts[ALICE]
    assert (account.available, account.held, account.pending) == (50, 100, 100)
    assert way.state.touched["failed_job"] == {found.event: None}
    sound(way)
    way.match()
    assert way.lease_of(job).attempt == 6
    way.complete(job)
    assert found.state is JobState.COMPLETED
    way.seal(14)
    account = way.state.ledger.accounts[ALICE]
    assert (account.available, account.held, account.pending) == (250 - 6, 0, 0)
    assert job not in way.state.queue.jobs
    sound(way)


@pytest.mark.rule("RTY-001")
def test_its_own_time_to_live_begins_anew_each_time() -> None:
    way = fleet(2, policy=patient(retry=RetryPolicy(failures_max=1)))
    job = asked_for(way, ttl_ms=HOUR_MS)
    for _ in range(3):
        exhausted(way, job)
        way.now_ms += 77
        way.do(Requeue(job))
        assert way.state.queue.jobs[job].expires_ms == way.now_ms + HOUR_MS


@pytest.mark.rule("RTY-001", "TTL-001")
def test_what_comes_of_it_expires_as_many_blocks_after_it_was_put_back() -> None:
    way, job = dead()
    way.seal(3)
    way.do(Requeue(job))
    way.match()
    way.complete(job)
    result, found = way.state.results[job], way.state.queue.jobs[job]
    assert result.expires_at == found.expires_height == found.height + 3 + way.state.policy.result.result_ttl_blocks


@pytest.mark.rule("RTY-001")
def test_putting_back_needs_the_money_again_and_room_in_the_queue() -> None:
    way, job = dead()
    way.do(Cancel(asked_for(way, 2, max_fee=140)))  # what was refunded is not final yet
    no = refused(way.state, Requeue(job), way.now_ms)
    assert (no.rule, no.name) == ("ESC-001", "InsufficientFunds")
    full, other = dead(admission=AdmissionPolicy(queue_depth_max=1))
    asked_for(full, 2, max_fee=1)
    assert refused(full.state, Requeue(other), full.now_ms).name == "QueueFull"


@pytest.mark.rule("RTY-001", "JOB-007")
def test_only_what_has_failed_is_put_back_and_asking_again_puts_it_back_once() -> None:
    way, job = dead()
    alive = asked_for(way, 2, max_fee=1)
    assert refused(way.state, Requeue(alive), way.now_ms).rule == "JOB-007"
    assert refused(way.state, Requeue(TaskId(bytes(32))), way.now_ms).name == "NotFound"
    way.do(Requeue(job))
    assert way.do(Requeue(job)) == ()
    way.do(Cancel(job))
    assert refused(way.state, Requeue(job), way.now_ms).rule == "JOB-007"


@pytest.mark.rule("RTY-001", "ENG-005")
def test_a_job_that_memory_has_let_go_comes_back_from_its_record_and_an_old_record_does_not_count_twice() -> None:
    way, job = dead(depth=0)
    record = msgspec.structs.replace(way.state.queue.jobs[job])
    way.seal()
    assert job not in way.state.queue.jobs
    assert refused(way.state, Requeue(job), way.now_ms).name == "NotFound"
    way.do(Requeue(job, record))
    assert (way.state.queue.jobs[job].requeues, way.state.requeued) == (1, {})
    way.do(Cancel(job))
    way.seal()
    assert job not in way.state.queue.jobs
    assert refused(way.state, Requeue(job, record), way.now_ms).says.endswith("was put back already")
    sound(way)


@pytest.mark.rule("RTY-001", "CHN-003", "CHN-004", "ESC-001")
@pytest.mark.parametrize("ending", ["alive", "completed", "cancelled", "failed again"])
@pytest.mark.parametrize("down_to", [0, 1, 2, 3])
def test_a_reorg_moves_the_refund_of_the_failure_and_the_end_of_the_second_life_each_by_itself(
    ending: str, down_to: int
) -> None:
    way = fleet(2, policy=patient(retry=RetryPolicy(failures_max=1)), money=250)
    way.seal()
    job = asked_for(way)
    exhausted(way, job)
    way.seal()
    way.do(Requeue(job))
    first, second = hold_of(way.state.queue.jobs[job], 0), hold_of(way.state.queue.jobs[job])
    way.seal()
    if ending == "completed":
        way.match()
        way.complete(job)
    elif ending == "cancelled":
        way.do(Cancel(job))
    elif ending == "failed again":
        exhausted(way, job)
    state = way.state.queue.jobs[job].state
    way.do(RollBack(Height(down_to)))
    holds = way.state.ledger.holds
    assert (holds[first].status, holds[first].height) == (HoldStatus.REFUNDED, min(2, down_to + 1))
    is_held = ending == "alive"
    assert (holds[second].status is HoldStatus.HELD) is is_held
    assert way.state.queue.jobs[job].state is state
    sound(way)
    way.seal(20)
    assert (job in way.state.queue.jobs) is is_held
    assert way.state.requeued == {}
    account = way.state.ledger.accounts[ALICE]
    assert account.available + account.held == 250 - (6 if ending == "completed" else 0)
    sound(way)


@pytest.mark.rule("RTY-001")
def test_a_fees_name_tells_whose_it_is_and_of_which_life() -> None:
    way, job = dead()
    found = way.state.queue.jobs[job]
    assert bytes(hold_of(found)) == bytes(job)
    for requeues in (0, 1, 2, 300):
        name = hold_of(found, requeues)
        assert (task_of(name), requeues_of(name)) == (job, requeues)


# ------------------------------------------------------------------------------------------------ tombstones


@pytest.mark.rule("TTL-002")
def test_tombstones_go_with_all_their_rows_and_their_ids_stay_claimed() -> None:
    way, job = dead(depth=0)
    event = way.state.queue.jobs[job].event
    way.seal()
    claims = dict(way.state.claims.recent)
    (buried,) = way.do(Bury([Grave(event, job, [3, 4])]))  # type: ignore[list-item]
    assert isinstance(buried, JobsBuried)
    gone = [(table, key) for table, rows in way.state.touched.items() for key, row in rows.items() if row is None]
    assert sorted(gone) == [("failed_job", event), ("job", event), ("lease", 3), ("lease", 4), ("spec", event)]
    assert way.state.claims.recent == claims
    assert Amount(250) == way.state.ledger.accounts[ALICE].available


@pytest.mark.rule("TTL-002")
def test_nothing_is_buried_whose_money_could_still_move() -> None:
    way, job = dead()
    grave = Grave(way.state.queue.jobs[job].event, job)
    assert way.do(Bury([grave])) == ()
    way.seal(13)
    assert len(way.do(Bury([grave]))) == 1


@pytest.mark.rule("TTL-002", "RTY-001")
@pytest.mark.parametrize(("late_ms", "is_there"), [(-1, True), (0, False)])
def test_what_may_be_buried_is_not_put_back(late_ms: int, is_there: bool) -> None:
    way, job = dead(depth=0, ttl=TtlPolicy(tombstone_ms=10_000))
    record = msgspec.structs.replace(way.state.queue.jobs[job])
    way.seal()
    way.now_ms += 10_000 + late_ms
    assert isinstance(way.ask(Requeue(job, record)), Refused) is not is_there
