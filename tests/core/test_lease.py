"""Leases: given by the matcher, acknowledged, renewed, given back, over; each mark just before, at and after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.test_way_histories import indexes
from tests.core.ways import BEGIN_MS, Way, leased, public

from holdfast.core import law, retry
from holdfast.core.act import Act
from holdfast.core.clock import NoteTime, TimeNoted
from holdfast.core.event import Decided, OwnershipTaken, Tip
from holdfast.core.job.record import JobState
from holdfast.core.lease.acts import AckLease, DeclineLease, FailLease, LeaseClosed, Reap, RenewLease
from holdfast.core.lease.record import LeaseStatus
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Cancel, JobCancelled
from holdfast.core.refusal import Refused
from holdfast.core.state import restore, snapshot
from holdfast.core.values import Epoch, ProviderId, TaskId

T_MS = 600_000


@pytest.mark.rule("LEA-002")
def test_a_lease_has_its_marks_from_the_start() -> None:
    way, job, lease = leased()
    marks = (lease.t_start_ms, lease.t_deadline_ms, lease.renew_by_ms, lease.ack_by_ms)
    assert marks == (BEGIN_MS, BEGIN_MS + T_MS, BEGIN_MS + 360_000, BEGIN_MS + 5_000)
    assert (lease.status, lease.attempt) == (LeaseStatus.ACTIVE, 0)
    assert way.state.queue.jobs[job].state is JobState.ASSIGNED
    assert way.match() == ()  # at most one live lease per job


@pytest.mark.rule("LEA-003")
@pytest.mark.parametrize(("late_ms", "is_taken"), [(4_999, True), (5_000, False), (5_001, False)])
def test_an_ack_counts_until_its_time_is_over(late_ms: int, is_taken: bool) -> None:
    way, _, lease = leased()
    way.now_ms += late_ms
    outcome = way.ask(AckLease(lease.id, lease.provider_id))
    assert isinstance(outcome, Refused) is not is_taken
    if is_taken:
        assert way.ask(AckLease(lease.id, lease.provider_id)) == ()  # again it is the same one


@pytest.mark.rule("LEA-004")
def test_renewals_move_both_marks_four_times_and_asking_again_renews_once() -> None:
    way, job, lease = leased()
    way.ack(job)
    for renewal in range(1, 5):
        way.do(RenewLease(lease.id, lease.provider_id, renewal))
        assert way.ask(RenewLease(lease.id, lease.provider_id, renewal)) == ()
        more = renewal * T_MS // 2
        assert (lease.t_deadline_ms, lease.renew_by_ms) == (BEGIN_MS + T_MS + more, BEGIN_MS + 360_000 + more)
    assert lease.status is LeaseStatus.RENEWED
    refused = way.ask(RenewLease(lease.id, lease.provider_id, 5))
    assert isinstance(refused, Refused)
    assert refused.rule == "LEA-004"


@pytest.mark.rule("LEA-004")
@pytest.mark.parametrize(("at_ms", "late"), [(359_999, 0), (360_000, 1), (599_999, 1)])
def test_a_renewal_after_its_mark_is_taken_and_counted_as_late(at_ms: int, late: int) -> None:
    way, job, lease = leased()
    way.ack(job)
    way.now_ms += at_ms
    way.do(RenewLease(lease.id, lease.provider_id, 1))
    assert lease.late_renewals == late


@pytest.mark.rule("LEA-005")
@pytest.mark.parametrize(("at_ms", "is_over"), [(T_MS - 1, False), (T_MS, True), (T_MS + 1, True)])
def test_at_the_deadline_a_lease_is_over(at_ms: int, is_over: bool) -> None:
    way, job, lease = leased()
    way.ack(job)
    way.now_ms += at_ms
    assert isinstance(way.ask(RenewLease(lease.id, lease.provider_id, 1)), Refused) == is_over
    if is_over:
        closed, *_ = way.do(Reap())
        assert isinstance(closed, LeaseClosed)
        assert (closed.status, closed.reason, closed.is_failure) == (LeaseStatus.EXPIRED, "LEASE_EXPIRED", True)


@pytest.mark.rule("LEA-006")
def test_declining_gives_the_job_back_at_once_and_blames_nobody() -> None:
    way, job, lease = leased()
    way.do(DeclineLease(lease.id, lease.provider_id))
    found = way.state.queue.jobs[job]
    assert (found.state, found.failures, found.attempts) == (JobState.QUEUED, 0, 1)
    assert way.state.providers[lease.provider_id].failed == 0
    way.now_ms += 30_000  # for so long others would have it first
    way.match()
    assert way.lease_of(job).attempt == 1
    assert way.lease_of(job).id != lease.id


@pytest.mark.rule("RTY-001", "RTY-002")
def test_a_failure_counts_and_the_next_try_waits_the_exact_delay() -> None:
    way, job, lease = leased()
    way.do(FailLease(lease.id, lease.provider_id, "out of memory"))
    found = way.state.queue.jobs[job]
    wait_ms = retry.delay_ms(found.kind, job, 0, way.state.policy.retry)
    assert (found.failures, found.not_before_ms) == (1, BEGIN_MS + wait_ms)
    way.now_ms = BEGIN_MS + wait_ms - 1
    assert way.match() == ()
    way.now_ms += 1
    assert len(way.match()) == 1


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("kind", [AckLease, DeclineLease, FailLease])
def test_a_lease_listens_to_its_holder_alone(kind: type) -> None:
    way, _, lease = leased()
    outcome = way.ask(kind(lease.id, ProviderId(provider_id(public(99)))))
    assert isinstance(outcome, Refused)
    assert (outcome.rule, outcome.name) == ("PRV-003", "Forbidden")


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize("is_leased", [False, True])
def test_a_job_past_its_time_expires_and_its_money_goes_back(is_leased: bool) -> None:
    way = Way()
    way.funded()
    if is_leased:
        way.provider()
    job = way.enqueue()
    way.match()
    found = way.state.queue.jobs[job]
    ends_ms = min(found.expires_ms, found.relative_expires_ms or found.expires_ms)
    if is_leased:
        way.ack(job)
        way.lease_of(job).t_deadline_ms = ends_ms + 10  # a lease that would still live
    way.now_ms = ends_ms - 1
    assert not any(type(event).__name__ == "JobExpired" for event in way.do(Reap()))
    way.now_ms += 1
    way.do(Reap())
    assert (found.state, found.charged) == (JobState.EXPIRED, 0)
    assert not way.state.leases.by_id
    assert way.state.ledger.accounts[found.caller].pending == found.max_fee


@pytest.mark.rule("TTL-001")
def test_a_retry_that_would_start_after_the_time_to_live_expires_the_job_now() -> None:
    way, job, lease = leased()
    found = way.state.queue.jobs[job]
    found.expires_ms = way.now_ms + 100
    way.do(FailLease(lease.id, lease.provider_id))
    assert found.state is JobState.EXPIRED


@pytest.mark.rule("JOB-008")
def test_cancelling_takes_the_work_from_whoever_has_it() -> None:
    way, job, lease = leased()
    way.do(Cancel(job))
    assert way.state.queue.jobs[job].state is JobState.CANCELLED
    assert not way.state.leases.by_id
    assert way.state.providers[lease.provider_id].leases == 0


@pytest.mark.rule("JOB-008", "SEC-001")
@pytest.mark.parametrize("command", [Cancel, lambda job: Act("local", "cap.cancel", Cancel(job))])
def test_the_answer_to_a_cancelling_is_the_cancelling_whatever_stands_before_it(
    command: Callable[[TaskId], law.Command],
) -> None:
    way, job, _ = leased()
    decided = law.decide(way.state, command(job), way.now_ms)
    assert isinstance(decided, Decided)
    assert decided.events[decided.preface] == JobCancelled(job, "CANCELLED", way.now_ms)


@pytest.mark.rule("TTL-001", "ENG-003")
def test_after_a_start_every_end_is_noticed_when_it_would_have_been() -> None:
    way, job, _ = leased()
    way.enqueue()
    copy, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)
    assert way.state.queue.jobs[job].relative_expires_ms == BEGIN_MS + 6 * 3_600_000
    assert indexes(copy, way.now_ms) == indexes(way.state, way.now_ms)


# ------------------------------------------------------------------------------------------------ the node's outages


def taken_over(way: Way, outage_ms: int) -> None:
    way.now_ms += outage_ms
    law.apply(way.state, OwnershipTaken(Epoch(2), "node", "", outage_ms, way.now_ms))


@pytest.mark.rule("LEA-008")
def test_an_outage_of_the_node_moves_every_mark_that_had_not_passed() -> None:
    way, job, lease = leased()
    way.now_ms += 1_000
    before = (lease.t_deadline_ms, lease.renew_by_ms, lease.ack_by_ms)
    taken_over(way, 10_000)
    assert (lease.t_deadline_ms, lease.renew_by_ms, lease.ack_by_ms) == tuple(mark + 10_000 for mark in before)
    way.ack(job)  # in time, though 11 s have passed
    assert way.state.queue.jobs[job].expires_ms == BEGIN_MS + 24 * 3_600_000  # never a time to live


@pytest.mark.rule("LEA-008")
def test_a_mark_that_had_passed_stays_passed() -> None:
    way, job, lease = leased()
    way.ack(job)
    way.now_ms += 400_000
    renew_by_ms = lease.renew_by_ms
    taken_over(way, 1_000)
    assert lease.renew_by_ms == renew_by_ms
    way.now_ms = lease.t_deadline_ms
    passed_ms = lease.t_deadline_ms
    taken_over(way, 0)
    way.now_ms += 5
    taken_over(way, 5)
    assert lease.t_deadline_ms == passed_ms


@pytest.mark.rule("LEA-008")
def test_all_outages_together_move_a_lease_by_no_more_than_its_own_length() -> None:
    way, job, lease = leased()
    way.ack(job)
    for _ in range(5):
        taken_over(way, 200_000)
    assert lease.t_deadline_ms == BEGIN_MS + 2 * T_MS


@pytest.mark.rule("CAN-004")
def test_the_time_can_be_noted_and_changes_nothing_else() -> None:
    way, *_ = leased()
    assert way.do(NoteTime()) == (TimeNoted(),)
