"""Retries and times to live: delays to the millisecond, ends by time and by height, dead letters, tombstones."""

from __future__ import annotations

import msgspec
import pytest
from tests.core import naive
from tests.core.books import refused
from tests.core.fleet import asked_for, exhausted, fleet, given_back, patient, sent, tried_again
from tests.core.ways import ALICE, BEGIN_MS, Way

from holdfast.core.chain.acts import RollBack
from holdfast.core.escrow.books import HoldStatus
from holdfast.core.escrow.books import broken_laws as broken_money
from holdfast.core.job.record import FailedJob, JobState, hold_of, requeues_of, task_of
from holdfast.core.lease.acts import AckLease, JobExpired, JobFailed, LeaseClosed, Reap, RenewLease
from holdfast.core.lease.record import LeaseStatus
from holdfast.core.policy import AdmissionPolicy, LeasePolicy, ResultPolicy, RetryPolicy, TtlPolicy
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.queue.acts import Cancel
from holdfast.core.queue.books import broken_laws as broken_queue
from holdfast.core.queue.bury import Bury, Grave, JobsBuried
from holdfast.core.queue.requeue import JobRequeued, Requeue
from holdfast.core.refusal import Refused
from holdfast.core.values import Amount, Height, TaskId

HOUR_MS = 3_600_000
TTL_MS = {"AI": 24 * HOUR_MS, "QUANTUM": 2 * HOUR_MS}


def delay_ms(kind: str, job: bytes, failure: int) -> int:
    """RTY-002 as a naive reader has it."""
    return naive.backoff(kind, failure, naive.jitter(job, failure))


def sound(way: Way) -> None:
    assert broken_money(way.state.ledger) == []
    assert broken_queue(way.state.queue, way.state.ledger) == []


# ------------------------------------------------------------------------------------------------ retries


@pytest.mark.rule("RTY-001", "RTY-002")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
def test_each_failure_waits_twice_as_long_by_the_jobs_own_dice_and_the_sixth_is_the_last(kind: str) -> None:
    way = fleet(2)
    job = asked_for(way, kind=kind)
    for failure in range(6):
        tried_again(way, job)
        events = given_back(way, job)
        closed, last = events[0], events[-1]
        assert isinstance(closed, LeaseClosed)
        assert closed.not_before_ms == way.now_ms + delay_ms(kind, job, failure)
        assert isinstance(last, JobFailed) is (failure == 5)
        sound(way)
    found = way.state.queue.jobs[job]
    assert (found.state, found.reason, found.failures) == (JobState.FAILED, "ATTEMPTS_EXHAUSTED", 6)
    assert (found.attempts, found.charged) == (6, 0)


@pytest.mark.rule("RTY-001", "RTY-002")
@pytest.mark.parametrize(("early_ms", "is_given"), [(1, False), (0, True)])
def test_a_retry_starts_at_its_time_and_not_before(early_ms: int, is_given: bool) -> None:
    way = fleet()
    job = asked_for(way)
    way.match()
    given_back(way, job)
    way.now_ms = way.state.queue.jobs[job].not_before_ms - early_ms
    assert bool(way.match()) is is_given


@pytest.mark.rule("RTY-001")
@pytest.mark.parametrize("most", [1, 2])
def test_how_often_a_job_may_fail_is_policy(most: int) -> None:
    way = fleet(2, policy=patient(retry=RetryPolicy(failures_max=most)))
    job = asked_for(way)
    exhausted(way, job)
    assert way.state.queue.jobs[job].state is JobState.FAILED


# ------------------------------------------------------------------------------------------------ times to live


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize(("late_ms", "is_over"), [(-1, False), (0, True)])
def test_a_job_that_waits_ends_with_its_own_time(kind: str, late_ms: int, is_over: bool) -> None:
    way = fleet(0)
    job, short = asked_for(way, 1, kind), asked_for(way, 2, kind, ttl_ms=5_000)
    way.now_ms = BEGIN_MS + 5_000 + late_ms
    assert [type(each) for each in way.do(Reap())] == ([JobExpired] if is_over else [])
    assert (way.state.queue.jobs[short].state is JobState.EXPIRED) is is_over
    way.now_ms = BEGIN_MS + TTL_MS[kind] + late_ms
    way.do(Reap())
    found = way.state.queue.jobs[job]
    assert (found.state is JobState.EXPIRED) is is_over
    if is_over:
        assert (found.reason, found.ended_ms, found.charged) == ("TTL", way.now_ms, 0)
        assert way.state.ledger.accounts[ALICE].pending == 200
    sound(way)


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("late_ms", "is_over"), [(-1, False), (0, True)])
def test_six_hours_after_its_first_lease_a_job_ends_whoever_works_on_it(late_ms: int, is_over: bool) -> None:
    way = fleet(1, policy=patient(lease=LeasePolicy(ai_ms=10 * HOUR_MS)))
    way.now_ms += HOUR_MS
    job = asked_for(way)
    way.match()
    way.ack(job)
    lease = way.lease_of(job)
    way.now_ms = BEGIN_MS + 7 * HOUR_MS + late_ms
    outcome = way.ask(RenewLease(lease.id, lease.provider_id, 1))
    assert isinstance(outcome, Refused) is is_over  # also before anybody came to end it
    events = way.do(Reap())
    assert bool(events) is is_over
    if is_over:
        closed, expired = events
        assert isinstance(closed, LeaseClosed)
        assert (closed.status, closed.reason, closed.is_failure) == (LeaseStatus.CANCELLED, "JOB_EXPIRED", False)
        assert expired == JobExpired(job, "RELATIVE_TTL", way.now_ms)
        assert way.state.providers[lease.provider_id].failed == 0
    sound(way)


@pytest.mark.rule("TTL-001")
def test_the_six_hours_run_through_all_attempts() -> None:
    way = fleet(2)
    job = asked_for(way)
    way.match()
    ends_ms = way.state.queue.jobs[job].relative_expires_ms
    assert ends_ms == BEGIN_MS + 6 * HOUR_MS
    given_back(way, job)
    tried_again(way, job)
    assert way.lease_of(job).attempt == 1
    assert way.state.queue.jobs[job].relative_expires_ms == ends_ms


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("blocks", "is_over"), [(2, False), (3, False), (4, True)])
@pytest.mark.parametrize("is_leased", [False, True])
def test_a_job_without_an_accepted_proof_ends_after_so_many_blocks(blocks: int, is_over: bool, is_leased: bool) -> None:
    way = fleet(int(is_leased), policy=patient(result=ResultPolicy(result_ttl_blocks=3)))
    way.seal(5)
    job = asked_for(way)
    way.match()
    assert way.state.queue.jobs[job].expires_height == 6 + 3
    way.seal(blocks)
    assert way.state.open_height == 6 + blocks
    way.do(Reap())
    found = way.state.queue.jobs[job]
    assert (found.state is JobState.EXPIRED) is is_over
    assert found.reason == ("RESULT_TTL" if is_over else "")
    assert way.state.leases.by_id == {} if is_over or not is_leased else job in way.state.leases.by_job
    sound(way)


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("blocks", "is_over"), [(3, False), (4, True)])
def test_after_its_last_block_a_job_is_nobodys_though_it_was_not_reaped_yet(blocks: int, is_over: bool) -> None:
    way = fleet(1, policy=patient(result=ResultPolicy(result_ttl_blocks=3)))
    job = asked_for(way)
    way.match()
    way.seal(blocks)
    lease = way.lease_of(job)
    outcome = way.ask(AckLease(lease.id, lease.provider_id))
    assert isinstance(outcome, Refused) is is_over


@pytest.mark.rule("TTL-001", "RCV-001")
@pytest.mark.parametrize("is_good", [True, False])
def test_what_was_handed_in_freezes_every_time_to_live_until_its_verdict(is_good: bool) -> None:
    way = fleet(1, policy=patient(result=ResultPolicy(result_ttl_blocks=3)))
    job = asked_for(way)
    way.match()
    lease = way.lease_of(job)
    way.do(Submit(lease.id, lease.provider_id, sent(way, job)))
    way.seal(9)
    way.now_ms += 48 * HOUR_MS
    assert way.do(Reap()) == ()
    events = way.do(Judge(lease.id, is_good))
    found = way.state.queue.jobs[job]
    assert found.state is (JobState.COMPLETED if is_good else JobState.EXPIRED)
    assert any(isinstance(event, JobExpired) for event in events) is not is_good
    assert way.do(Reap()) == ()


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("spare_ms", "is_over"), [(0, True), (1, False)])
def test_a_retry_that_would_start_when_its_time_is_over_ends_the_job_now(spare_ms: int, is_over: bool) -> None:
    way = fleet()
    job = asked_for(way, ttl_ms=HOUR_MS)
    way.match()
    way.now_ms = BEGIN_MS + HOUR_MS - delay_ms("AI", job, 0) - spare_ms
    way.lease_of(job).t_deadline_ms = BEGIN_MS + 2 * HOUR_MS
    way.lease_of(job).acked_ms = BEGIN_MS
    events = given_back(way, job)
    assert isinstance(events[-1], JobExpired) is is_over
    assert way.state.queue.jobs[job].state is (JobState.EXPIRED if is_over else JobState.QUEUED)


@pytest.mark.rule("TTL-001", "CHN-003", "CHN-004")
def test_a_rollback_wakes_no_expired_job_and_its_refund_is_in_the_next_block() -> None:
    way = fleet(0, policy=patient(result=ResultPolicy(result_ttl_blocks=2)))
    job = asked_for(way)
    way.seal(3)
    way.do(Reap())
    found = way.state.queue.jobs[job]
    assert (found.state, found.settled_height) == (JobState.EXPIRED, 4)
    way.do(RollBack(Height(1)))
    assert (found.state, found.settled_height) == (JobState.EXPIRED, 2)
    assert way.do(Reap()) == ()
    sound(way)


@pytest.mark.rule("TTL-001")
def test_many_jobs_end_in_bounded_lots_each_once() -> None:
    way = fleet(0)
    jobs = [asked_for(way, nonce, ttl_ms=1_000) for nonce in range(7)]
    way.now_ms += 1_000
    lots = []
    while events := way.do(Reap(limit=3)):
        lots.append(len(events))
    assert lots == [3, 3, 1]
    assert all(way.state.queue.jobs[job].state is JobState.EXPIRED for job in jobs)


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
    assert refused(way.state, Requeue(alive), way.now_ms).rule == "JOB-007"


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
