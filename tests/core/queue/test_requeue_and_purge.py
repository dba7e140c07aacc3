"""Jobs that failed too often: requeued with their fee reserved anew, whatever a reorg does; then their tombstones."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.commands import refused
from tests.core.core_driver import ALICE, CoreDriver
from tests.core.fleet import enqueue_job, exhaust_attempts, fleet, lenient_policy

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Amount, Height, TaskId
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.escrow.model import ReservationStatus
from holdfast.core.invariants import broken_invariants
from holdfast.core.job.model import FailedJob, JobState, requeues_of_reservation, reservation_id, task_of_reservation
from holdfast.core.policy import AdmissionPolicy, RetryPolicy, TtlPolicy
from holdfast.core.queue.messages import CancelJob
from holdfast.core.queue.purge import JobsPurged, PurgedJob, PurgeJobs
from holdfast.core.queue.requeue import JobRequeued, Requeue

HOUR_MS = 3_600_000
TTL_MS = {"AI": 24 * HOUR_MS, "QUANTUM": 2 * HOUR_MS}


def check_invariants(core: CoreDriver) -> None:
    assert broken_invariants(core.state) == []


# ------------------------------------------------------------------------------------------------ dead letters


def failed_job(depth: int = 12, **parts: msgspec.Struct) -> tuple[CoreDriver, TaskId]:
    core = fleet(2, policy=lenient_policy(depth, **parts), money=250)
    job = enqueue_job(core)
    exhaust_attempts(core, job)
    return core, job


@pytest.mark.rule("RTY-001")
def test_a_job_that_failed_too_often_is_a_dead_letter_that_says_what_failed_last() -> None:
    core, job = failed_job()
    found = core.state.queue.jobs[job]
    letter = FailedJob(found.event, job, found.kind, ALICE, 100, 6, 0, "PROVIDER_FAIL", core.now_ms)
    assert core.state.touched["failed_job"] == {found.event: letter}


@pytest.mark.rule("RTY-001", "LEA-001", "ESC-001")
def test_a_requeued_job_begins_anew_with_its_fee_reserved_once_more() -> None:
    core, job = failed_job()
    core.now_ms += 5_000
    (event,) = core.do(Requeue(job))
    assert isinstance(event, JobRequeued)
    found = core.state.queue.jobs[job]
    assert (found.state, found.failures, found.attempts, found.requeues) == (JobState.QUEUED, 0, 6, 1)
    assert (found.expires_ms, found.relative_expires_ms) == (core.now_ms + TTL_MS["AI"], None)
    assert (found.ended_ms, found.charged, found.settled_height, found.reason) == (None, None, None, "")
    account = core.state.ledger.accounts[ALICE]
    assert (account.available, account.held, account.pending) == (50, 100, 100)
    assert core.state.touched["failed_job"] == {found.event: None}
    check_invariants(core)
    core.match()
    assert core.lease_of(job).attempt == 6
    core.complete(job)
    assert found.state is JobState.COMPLETED
    core.seal(14)
    account = core.state.ledger.accounts[ALICE]
    assert (account.available, account.held, account.pending) == (250 - 6, 0, 0)
    assert job not in core.state.queue.jobs
    check_invariants(core)


@pytest.mark.rule("RTY-001")
def test_its_own_time_to_live_begins_anew_each_time() -> None:
    core = fleet(2, policy=lenient_policy(retry=RetryPolicy(failures_max=1)))
    job = enqueue_job(core, ttl_ms=HOUR_MS)
    for _ in range(3):
        exhaust_attempts(core, job)
        core.now_ms += 77
        core.do(Requeue(job))
        assert core.state.queue.jobs[job].expires_ms == core.now_ms + HOUR_MS


@pytest.mark.rule("RTY-001", "TTL-001")
def test_its_result_expires_as_many_blocks_after_it_was_requeued() -> None:
    core, job = failed_job()
    core.seal(3)
    core.do(Requeue(job))
    core.match()
    core.complete(job)
    result, found = core.state.results[job], core.state.queue.jobs[job]
    assert result.expires_at == found.expires_height == found.height + 3 + core.state.policy.result.result_ttl_blocks


@pytest.mark.rule("RTY-001")
def test_a_requeue_needs_the_money_again_and_room_in_the_queue() -> None:
    core, job = failed_job()
    core.do(CancelJob(enqueue_job(core, 2, max_fee=140)))  # what was refunded is not final yet
    no = refused(core.state, Requeue(job), core.now_ms)
    assert (no.rule, no.name) == ("ESC-001", "InsufficientFunds")
    full, other = failed_job(admission=AdmissionPolicy(queue_depth_max=1))
    enqueue_job(full, 2, max_fee=1)
    assert refused(full.state, Requeue(other), full.now_ms).name == "QueueFull"


@pytest.mark.rule("RTY-001", "JOB-007")
def test_only_what_has_failed_is_requeued_and_asking_again_requeues_it_once() -> None:
    core, job = failed_job()
    alive = enqueue_job(core, 2, max_fee=1)
    assert refused(core.state, Requeue(alive), core.now_ms).rule == "JOB-007"
    assert refused(core.state, Requeue(TaskId(bytes(32))), core.now_ms).name == "NotFound"
    core.do(Requeue(job))
    assert core.do(Requeue(job)) == ()
    core.do(CancelJob(job))
    assert refused(core.state, Requeue(job), core.now_ms).rule == "JOB-007"


@pytest.mark.rule("RTY-001", "ENG-005")
def test_an_evicted_job_comes_back_from_its_record_and_an_old_record_does_not_count_twice() -> None:
    core, job = failed_job(depth=0)
    record = msgspec.structs.replace(core.state.queue.jobs[job])
    core.seal()
    assert job not in core.state.queue.jobs
    assert refused(core.state, Requeue(job), core.now_ms).name == "NotFound"
    core.do(Requeue(job, record))
    assert (core.state.queue.jobs[job].requeues, core.state.requeued) == (1, {})
    core.do(CancelJob(job))
    core.seal()
    assert job not in core.state.queue.jobs
    assert refused(core.state, Requeue(job, record), core.now_ms).message.endswith("was requeued already")
    check_invariants(core)


@pytest.mark.rule("RTY-001", "CHN-003", "CHN-004", "ESC-001")
@pytest.mark.parametrize("ending", ["alive", "completed", "cancelled", "failed again"])
@pytest.mark.parametrize("down_to", [0, 1, 2, 3])
def test_a_reorg_moves_the_refund_of_the_failure_and_the_end_after_the_requeue_each_by_itself(
    ending: str, down_to: int
) -> None:
    core = fleet(2, policy=lenient_policy(retry=RetryPolicy(failures_max=1)), money=250)
    core.seal()
    job = enqueue_job(core)
    exhaust_attempts(core, job)
    core.seal()
    core.do(Requeue(job))
    first, second = reservation_id(core.state.queue.jobs[job], 0), reservation_id(core.state.queue.jobs[job])
    core.seal()
    if ending == "completed":
        core.match()
        core.complete(job)
    elif ending == "cancelled":
        core.do(CancelJob(job))
    elif ending == "failed again":
        exhaust_attempts(core, job)
    state = core.state.queue.jobs[job].state
    core.do(RollBackBlocks(Height(down_to)))
    holds = core.state.ledger.reservations
    assert (holds[first].status, holds[first].height) == (ReservationStatus.REFUNDED, min(2, down_to + 1))
    is_held = ending == "alive"
    assert (holds[second].status is ReservationStatus.HELD) is is_held
    assert core.state.queue.jobs[job].state is state
    check_invariants(core)
    core.seal(20)
    assert (job in core.state.queue.jobs) is is_held
    assert core.state.requeued == {}
    account = core.state.ledger.accounts[ALICE]
    assert account.available + account.held == 250 - (6 if ending == "completed" else 0)
    check_invariants(core)


@pytest.mark.rule("RTY-001")
def test_a_reservation_id_names_its_job_and_its_requeue() -> None:
    core, job = failed_job()
    found = core.state.queue.jobs[job]
    assert bytes(reservation_id(found)) == bytes(job)
    for requeues in (0, 1, 2, 300):
        name = reservation_id(found, requeues)
        assert (task_of_reservation(name), requeues_of_reservation(name)) == (job, requeues)


# ------------------------------------------------------------------------------------------------ tombstones


@pytest.mark.rule("TTL-002")
def test_tombstones_go_with_all_their_rows_and_their_ids_stay_claimed() -> None:
    core, job = failed_job(depth=0)
    event = core.state.queue.jobs[job].event
    core.seal()
    claims = dict(core.state.claims.recent)
    (buried,) = core.do(PurgeJobs([PurgedJob(event, job, [3, 4])]))  # type: ignore[list-item]
    assert isinstance(buried, JobsPurged)
    gone = [(table, key) for table, rows in core.state.touched.items() for key, row in rows.items() if row is None]
    assert sorted(gone) == [("failed_job", event), ("job", event), ("lease", 3), ("lease", 4), ("spec", event)]
    assert core.state.claims.recent == claims
    assert Amount(250) == core.state.ledger.accounts[ALICE].available


@pytest.mark.rule("TTL-002")
def test_nothing_is_purged_whose_money_could_still_move() -> None:
    core, job = failed_job()
    grave = PurgedJob(core.state.queue.jobs[job].event, job)
    assert core.do(PurgeJobs([grave])) == ()
    core.seal(13)
    assert len(core.do(PurgeJobs([grave]))) == 1


@pytest.mark.rule("TTL-002", "RTY-001")
@pytest.mark.parametrize(("late_ms", "is_there"), [(-1, True), (0, False)])
def test_what_may_be_purged_is_not_requeued(late_ms: int, is_there: bool) -> None:
    core, job = failed_job(depth=0, ttl=TtlPolicy(tombstone_ms=10_000))
    record = msgspec.structs.replace(core.state.queue.jobs[job])
    core.seal()
    core.now_ms += 10_000 + late_ms
    assert isinstance(core.ask(Requeue(job, record)), Refused) is not is_there
