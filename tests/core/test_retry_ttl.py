"""Retries and times to live: delays to the millisecond, ends by time and by height, dead letters, tombstones."""

from __future__ import annotations

import pytest
from tests.core import naive
from tests.core.fleet import asked_for, exhausted, fleet, given_back, patient, sent, tried_again
from tests.core.ways import ALICE, BEGIN_MS, Way

from holdfast.core.chain.acts import RollBack
from holdfast.core.escrow.books import broken_laws as broken_money
from holdfast.core.job.record import JobState
from holdfast.core.lease.acts import AckLease, JobExpired, JobFailed, LeaseClosed, Reap, RenewLease
from holdfast.core.lease.record import LeaseStatus
from holdfast.core.policy import LeasePolicy, ResultPolicy, RetryPolicy
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.queue.books import broken_laws as broken_queue
from holdfast.core.refusal import Refused
from holdfast.core.values import Height

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
    for command in (AckLease(lease.id, lease.provider_id), Submit(lease.id, lease.provider_id, sent(way, job))):
        outcome = way.ask(command)
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
