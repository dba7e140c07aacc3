"""Retries and times to live: delays to the millisecond, ends by time and by height, dead letters, tombstones."""

from __future__ import annotations

import pytest
from tests.core import naive
from tests.core.core_driver import ALICE, BEGIN_MS, CoreDriver
from tests.core.fleet import (
    completion_envelope,
    enqueue_job,
    exhaust_attempts,
    fail_lease,
    fleet,
    lenient_policy,
    retry_job,
)

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Height
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.invariants import broken_invariants
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import AckLease, ExpireDue, LeaseClosed, RenewLease
from holdfast.core.lease.model import LeaseStatus
from holdfast.core.policy import LeasePolicy, ResultPolicy, RetryPolicy
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.queue.messages import JobExpired, JobFailed

HOUR_MS = 3_600_000
TTL_MS = {"AI": 24 * HOUR_MS, "QUANTUM": 2 * HOUR_MS}


def delay_ms(kind: str, job: bytes, failure: int) -> int:
    """RTY-002 as a naive reader has it."""
    return naive.backoff(kind, failure, naive.jitter(job, failure))


def check_invariants(core: CoreDriver) -> None:
    assert broken_invariants(core.state) == []


# ------------------------------------------------------------------------------------------------ retries


@pytest.mark.rule("RTY-001", "RTY-002")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
def test_each_failure_waits_twice_as_long_by_the_jobs_own_dice_and_the_sixth_is_the_last(kind: str) -> None:
    core = fleet(2)
    job = enqueue_job(core, kind=kind)
    for failure in range(6):
        retry_job(core, job)
        events = fail_lease(core, job)
        closed, last = events[0], events[-1]
        assert isinstance(closed, LeaseClosed)
        assert closed.not_before_ms == core.now_ms + delay_ms(kind, job, failure)
        assert isinstance(last, JobFailed) is (failure == 5)
        check_invariants(core)
    found = core.state.queue.jobs[job]
    assert (found.state, found.reason, found.failures) == (JobState.FAILED, "ATTEMPTS_EXHAUSTED", 6)
    assert (found.attempts, found.charged) == (6, 0)


@pytest.mark.rule("RTY-001", "RTY-002")
@pytest.mark.parametrize(("early_ms", "is_given"), [(1, False), (0, True)])
def test_a_retry_starts_at_its_time_and_not_before(early_ms: int, is_given: bool) -> None:
    core = fleet()
    job = enqueue_job(core)
    core.match()
    fail_lease(core, job)
    core.now_ms = core.state.queue.jobs[job].not_before_ms - early_ms
    assert bool(core.match()) is is_given


@pytest.mark.rule("RTY-001")
@pytest.mark.parametrize("most", [1, 2])
def test_how_often_a_job_may_fail_is_policy(most: int) -> None:
    core = fleet(2, policy=lenient_policy(retry=RetryPolicy(failures_max=most)))
    job = enqueue_job(core)
    exhaust_attempts(core, job)
    assert core.state.queue.jobs[job].state is JobState.FAILED


# ------------------------------------------------------------------------------------------------ times to live


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize(("late_ms", "is_over"), [(-1, False), (0, True)])
def test_a_job_that_waits_ends_with_its_own_time(kind: str, late_ms: int, is_over: bool) -> None:
    core = fleet(0)
    job, short = enqueue_job(core, 1, kind), enqueue_job(core, 2, kind, ttl_ms=5_000)
    core.now_ms = BEGIN_MS + 5_000 + late_ms
    assert [type(each) for each in core.do(ExpireDue())] == ([JobExpired] if is_over else [])
    assert (core.state.queue.jobs[short].state is JobState.EXPIRED) is is_over
    core.now_ms = BEGIN_MS + TTL_MS[kind] + late_ms
    core.do(ExpireDue())
    found = core.state.queue.jobs[job]
    assert (found.state is JobState.EXPIRED) is is_over
    if is_over:
        assert (found.reason, found.ended_ms, found.charged) == ("TTL", core.now_ms, 0)
        assert core.state.ledger.accounts[ALICE].pending == 200
    check_invariants(core)


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("late_ms", "is_over"), [(-1, False), (0, True)])
def test_six_hours_after_its_first_lease_a_job_ends_whoever_works_on_it(late_ms: int, is_over: bool) -> None:
    core = fleet(1, policy=lenient_policy(lease=LeasePolicy(ai_ms=10 * HOUR_MS)))
    core.now_ms += HOUR_MS
    job = enqueue_job(core)
    core.match()
    core.ack(job)
    lease = core.lease_of(job)
    core.now_ms = BEGIN_MS + 7 * HOUR_MS + late_ms
    outcome = core.ask(RenewLease(lease.id, lease.provider_id, 1))
    assert isinstance(outcome, Refused) is is_over  # also before anybody came to end it
    events = core.do(ExpireDue())
    assert bool(events) is is_over
    if is_over:
        closed, expired = events
        assert isinstance(closed, LeaseClosed)
        assert (closed.status, closed.reason, closed.is_failure) == (LeaseStatus.CANCELLED, "JOB_EXPIRED", False)
        assert expired == JobExpired(job, "RELATIVE_TTL", core.now_ms)
        assert core.state.providers[lease.provider_id].failed == 0
    check_invariants(core)


@pytest.mark.rule("TTL-001")
def test_the_six_hours_run_through_all_attempts() -> None:
    core = fleet(2)
    job = enqueue_job(core)
    core.match()
    ends_ms = core.state.queue.jobs[job].relative_expires_ms
    assert ends_ms == BEGIN_MS + 6 * HOUR_MS
    fail_lease(core, job)
    retry_job(core, job)
    assert core.lease_of(job).attempt == 1
    assert core.state.queue.jobs[job].relative_expires_ms == ends_ms


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("blocks", "is_over"), [(2, False), (3, False), (4, True)])
@pytest.mark.parametrize("is_leased", [False, True])
def test_a_job_without_an_accepted_proof_ends_after_so_many_blocks(blocks: int, is_over: bool, is_leased: bool) -> None:
    core = fleet(int(is_leased), policy=lenient_policy(result=ResultPolicy(result_ttl_blocks=3)))
    core.seal(5)
    job = enqueue_job(core)
    core.match()
    assert core.state.queue.jobs[job].expires_height == 6 + 3
    core.seal(blocks)
    assert core.state.open_height == 6 + blocks
    core.do(ExpireDue())
    found = core.state.queue.jobs[job]
    assert (found.state is JobState.EXPIRED) is is_over
    assert found.reason == ("RESULT_TTL" if is_over else "")
    assert core.state.leases.by_id == {} if is_over or not is_leased else job in core.state.leases.by_job
    check_invariants(core)


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("blocks", "is_over"), [(3, False), (4, True)])
def test_after_its_last_block_a_job_is_nobodys_though_it_was_not_reaped_yet(blocks: int, is_over: bool) -> None:
    core = fleet(1, policy=lenient_policy(result=ResultPolicy(result_ttl_blocks=3)))
    job = enqueue_job(core)
    core.match()
    core.seal(blocks)
    lease = core.lease_of(job)
    for command in (
        AckLease(lease.id, lease.provider_id),
        SubmitCompletion(lease.id, lease.provider_id, completion_envelope(core, job)),
    ):
        outcome = core.ask(command)
        assert isinstance(outcome, Refused) is is_over


@pytest.mark.rule("TTL-001", "RCV-001")
@pytest.mark.parametrize("is_good", [True, False])
def test_what_was_submitted_freezes_every_time_to_live_until_its_verdict(is_good: bool) -> None:
    core = fleet(1, policy=lenient_policy(result=ResultPolicy(result_ttl_blocks=3)))
    job = enqueue_job(core)
    core.match()
    lease = core.lease_of(job)
    core.do(SubmitCompletion(lease.id, lease.provider_id, completion_envelope(core, job)))
    core.seal(9)
    core.now_ms += 48 * HOUR_MS
    assert core.do(ExpireDue()) == ()
    events = core.do(RecordVerdict(lease.id, is_good))
    found = core.state.queue.jobs[job]
    assert found.state is (JobState.COMPLETED if is_good else JobState.EXPIRED)
    assert any(isinstance(event, JobExpired) for event in events) is not is_good
    assert core.do(ExpireDue()) == ()


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("spare_ms", "is_over"), [(0, True), (1, False)])
def test_a_retry_that_would_start_when_its_time_is_over_ends_the_job_now(spare_ms: int, is_over: bool) -> None:
    core = fleet()
    job = enqueue_job(core, ttl_ms=HOUR_MS)
    core.match()
    core.now_ms = BEGIN_MS + HOUR_MS - delay_ms("AI", job, 0) - spare_ms
    core.lease_of(job).t_deadline_ms = BEGIN_MS + 2 * HOUR_MS
    core.lease_of(job).acked_ms = BEGIN_MS
    events = fail_lease(core, job)
    assert isinstance(events[-1], JobExpired) is is_over
    assert core.state.queue.jobs[job].state is (JobState.EXPIRED if is_over else JobState.QUEUED)


@pytest.mark.rule("TTL-001", "CHN-003", "CHN-004")
def test_a_rollback_wakes_no_expired_job_and_its_refund_is_in_the_next_block() -> None:
    core = fleet(0, policy=lenient_policy(result=ResultPolicy(result_ttl_blocks=2)))
    job = enqueue_job(core)
    core.seal(3)
    core.do(ExpireDue())
    found = core.state.queue.jobs[job]
    assert (found.state, found.settled_height) == (JobState.EXPIRED, 4)
    core.do(RollBackBlocks(Height(1)))
    assert (found.state, found.settled_height) == (JobState.EXPIRED, 2)
    assert core.do(ExpireDue()) == ()
    check_invariants(core)


@pytest.mark.rule("TTL-001")
def test_many_jobs_end_in_bounded_runs_each_once() -> None:
    core = fleet(0)
    jobs = [enqueue_job(core, nonce, ttl_ms=1_000) for nonce in range(7)]
    core.now_ms += 1_000
    lots = []
    while events := core.do(ExpireDue(limit=3)):
        lots.append(len(events))
    assert lots == [3, 3, 1]
    assert all(core.state.queue.jobs[job].state is JobState.EXPIRED for job in jobs)
