"""Leases: given by the matcher, acknowledged, renewed, given back, over; each mark just before, at and after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.core_driver import BEGIN_MS, CoreDriver, leased, public
from tests.core.histories.test_core_histories import indexes

from holdfast.core import state_machine
from holdfast.core.base.clock_record import RecordTime, TimeRecorded
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Decided, JournalHead, OwnershipTaken
from holdfast.core.base.privileged import PrivilegedCommand
from holdfast.core.base.values import ProviderId, TaskId, Term
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import AckLease, DeclineLease, ExpireDue, FailLease, LeaseClosed, RenewLease
from holdfast.core.lease.model import LeaseStatus
from holdfast.core.provider.model import provider_id
from holdfast.core.queue import retry
from holdfast.core.queue.messages import CancelJob, JobCancelled
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

T_MS = 600_000


@pytest.mark.rule("LEA-002")
def test_a_lease_has_its_deadlines_from_the_start() -> None:
    core, job, lease = leased()
    marks = (lease.t_start_ms, lease.t_deadline_ms, lease.renew_by_ms, lease.ack_by_ms)
    assert marks == (BEGIN_MS, BEGIN_MS + T_MS, BEGIN_MS + 360_000, BEGIN_MS + 5_000)
    assert (lease.status, lease.attempt) == (LeaseStatus.ACTIVE, 0)
    assert core.state.queue.jobs[job].state is JobState.ASSIGNED
    assert core.match() == ()  # at most one live lease per job


@pytest.mark.rule("LEA-003")
@pytest.mark.parametrize(("late_ms", "is_taken"), [(4_999, True), (5_000, False), (5_001, False)])
def test_an_ack_counts_until_its_time_is_over(late_ms: int, is_taken: bool) -> None:
    core, _, lease = leased()
    core.now_ms += late_ms
    outcome = core.ask(AckLease(lease.id, lease.provider_id))
    assert isinstance(outcome, Refused) is not is_taken
    if is_taken:
        assert core.ask(AckLease(lease.id, lease.provider_id)) == ()  # again it is the same one


@pytest.mark.rule("LEA-004")
def test_renewals_move_both_deadlines_four_times_and_asking_again_renews_once() -> None:
    core, job, lease = leased()
    core.ack(job)
    for renewal in range(1, 5):
        core.do(RenewLease(lease.id, lease.provider_id, renewal))
        assert core.ask(RenewLease(lease.id, lease.provider_id, renewal)) == ()
        more = renewal * T_MS // 2
        assert (lease.t_deadline_ms, lease.renew_by_ms) == (BEGIN_MS + T_MS + more, BEGIN_MS + 360_000 + more)
    assert lease.status is LeaseStatus.RENEWED
    refused = core.ask(RenewLease(lease.id, lease.provider_id, 5))
    assert isinstance(refused, Refused)
    assert refused.rule == "LEA-004"


@pytest.mark.rule("LEA-004")
@pytest.mark.parametrize(("at_ms", "late"), [(359_999, 0), (360_000, 1), (599_999, 1)])
def test_a_renewal_after_its_renew_by_time_is_accepted_and_counted_as_late(at_ms: int, late: int) -> None:
    core, job, lease = leased()
    core.ack(job)
    core.now_ms += at_ms
    core.do(RenewLease(lease.id, lease.provider_id, 1))
    assert lease.late_renewals == late


@pytest.mark.rule("LEA-005")
@pytest.mark.parametrize(("at_ms", "is_over"), [(T_MS - 1, False), (T_MS, True), (T_MS + 1, True)])
def test_at_the_deadline_a_lease_is_over(at_ms: int, is_over: bool) -> None:
    core, job, lease = leased()
    core.ack(job)
    core.now_ms += at_ms
    assert isinstance(core.ask(RenewLease(lease.id, lease.provider_id, 1)), Refused) == is_over
    if is_over:
        closed, *_ = core.do(ExpireDue())
        assert isinstance(closed, LeaseClosed)
        assert (closed.status, closed.reason, closed.is_failure) == (LeaseStatus.EXPIRED, "LEASE_EXPIRED", True)


@pytest.mark.rule("LEA-006")
def test_declining_requeues_the_job_at_once_and_blames_nobody() -> None:
    core, job, lease = leased()
    core.do(DeclineLease(lease.id, lease.provider_id))
    found = core.state.queue.jobs[job]
    assert (found.state, found.failures, found.attempts) == (JobState.QUEUED, 0, 1)
    assert core.state.providers[lease.provider_id].failed == 0
    core.now_ms += 30_000  # for so long others would have it first
    core.match()
    assert core.lease_of(job).attempt == 1
    assert core.lease_of(job).id != lease.id


@pytest.mark.rule("RTY-001", "RTY-002")
def test_a_failure_counts_and_the_next_try_waits_the_exact_delay() -> None:
    core, job, lease = leased()
    core.do(FailLease(lease.id, lease.provider_id, "out of memory"))
    found = core.state.queue.jobs[job]
    wait_ms = retry.delay_ms(found.kind, job, 0, core.state.policy.retry)
    assert (found.failures, found.not_before_ms) == (1, BEGIN_MS + wait_ms)
    core.now_ms = BEGIN_MS + wait_ms - 1
    assert core.match() == ()
    core.now_ms += 1
    assert len(core.match()) == 1


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("kind", [AckLease, DeclineLease, FailLease])
def test_a_lease_listens_to_its_holder_alone(kind: type) -> None:
    core, _, lease = leased()
    outcome = core.ask(kind(lease.id, ProviderId(provider_id(public(99)))))
    assert isinstance(outcome, Refused)
    assert (outcome.rule, outcome.name) == ("PRV-003", "Forbidden")


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize("is_leased", [False, True])
def test_a_job_past_its_time_expires_and_its_money_goes_back(is_leased: bool) -> None:
    core = CoreDriver()
    core.funded()
    if is_leased:
        core.provider()
    job = core.enqueue()
    core.match()
    found = core.state.queue.jobs[job]
    ends_ms = min(found.expires_ms, found.relative_expires_ms or found.expires_ms)
    if is_leased:
        core.ack(job)
        core.lease_of(job).t_deadline_ms = ends_ms + 10  # a lease that would still live
    core.now_ms = ends_ms - 1
    assert not any(type(event).__name__ == "JobExpired" for event in core.do(ExpireDue()))
    core.now_ms += 1
    core.do(ExpireDue())
    assert (found.state, found.charged) == (JobState.EXPIRED, 0)
    assert not core.state.leases.by_id
    assert core.state.ledger.accounts[found.caller].pending == found.max_fee


@pytest.mark.rule("TTL-001")
def test_a_retry_that_would_start_after_the_time_to_live_expires_the_job_now() -> None:
    core, job, lease = leased()
    found = core.state.queue.jobs[job]
    found.expires_ms = core.now_ms + 100
    core.do(FailLease(lease.id, lease.provider_id))
    assert found.state is JobState.EXPIRED


@pytest.mark.rule("JOB-008")
def test_cancelling_takes_the_work_from_whoever_has_it() -> None:
    core, job, lease = leased()
    core.do(CancelJob(job))
    assert core.state.queue.jobs[job].state is JobState.CANCELLED
    assert not core.state.leases.by_id
    assert core.state.providers[lease.provider_id].leases == 0


@pytest.mark.rule("JOB-008", "SEC-001")
@pytest.mark.parametrize("command", [CancelJob, lambda job: PrivilegedCommand("local", "cap.cancel", CancelJob(job))])
def test_the_answer_to_a_cancelling_is_the_cancelling_whatever_stands_before_it(
    command: Callable[[TaskId], Command],
) -> None:
    core, job, _ = leased()
    decided = state_machine.decide(core.state, command(job), core.now_ms)
    assert isinstance(decided, Decided)
    assert decided.events[decided.answer_index] == JobCancelled(job, "CANCELLED", core.now_ms)


@pytest.mark.rule("TTL-001", "ENG-003")
def test_after_a_start_every_end_is_noticed_when_it_would_have_been() -> None:
    core, job, _ = leased()
    core.enqueue()
    copy, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    assert core.state.queue.jobs[job].relative_expires_ms == BEGIN_MS + 6 * 3_600_000
    assert indexes(copy, core.now_ms) == indexes(core.state, core.now_ms)


# ------------------------------------------------------------------------------------------------ the node's outages


def take_over_after(core: CoreDriver, outage_ms: int) -> None:
    core.now_ms += outage_ms
    state_machine.apply(core.state, OwnershipTaken(Term(2), "node", "", outage_ms, core.now_ms))


@pytest.mark.rule("LEA-008")
def test_an_outage_of_the_node_moves_every_deadline_that_had_not_passed() -> None:
    core, job, lease = leased()
    core.now_ms += 1_000
    before = (lease.t_deadline_ms, lease.renew_by_ms, lease.ack_by_ms)
    take_over_after(core, 10_000)
    assert (lease.t_deadline_ms, lease.renew_by_ms, lease.ack_by_ms) == tuple(mark + 10_000 for mark in before)
    core.ack(job)  # in time, though 11 s have passed
    assert core.state.queue.jobs[job].expires_ms == BEGIN_MS + 24 * 3_600_000  # never a time to live


@pytest.mark.rule("LEA-008")
def test_a_deadline_that_had_passed_stays_passed() -> None:
    core, job, lease = leased()
    core.ack(job)
    core.now_ms += 400_000
    renew_by_ms = lease.renew_by_ms
    take_over_after(core, 1_000)
    assert lease.renew_by_ms == renew_by_ms
    core.now_ms = lease.t_deadline_ms
    passed_ms = lease.t_deadline_ms
    take_over_after(core, 0)
    core.now_ms += 5
    take_over_after(core, 5)
    assert lease.t_deadline_ms == passed_ms


@pytest.mark.rule("LEA-008")
def test_all_outages_together_move_a_lease_by_no_more_than_its_own_length() -> None:
    core, job, lease = leased()
    core.ack(job)
    for _ in range(5):
        take_over_after(core, 200_000)
    assert lease.t_deadline_ms == BEGIN_MS + 2 * T_MS


@pytest.mark.rule("CAN-004")
def test_the_time_can_be_recorded_and_changes_nothing_else() -> None:
    core, *_ = leased()
    assert core.do(RecordTime()) == (TimeRecorded(),)
