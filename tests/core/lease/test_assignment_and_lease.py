"""Assignment and lease: every timer just before, at and just after its mark; renewals, cancellations, quotas."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.core_driver import BEGIN_MS, CoreDriver
from tests.core.fleet import (
    completion_envelope,
    enqueue_job,
    fail_lease,
    fleet,
    join_provider,
    lenient_policy,
    retry_job,
)
from tests.core.reachable_states import unreachable_states

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event, JournalHead, OwnershipTaken
from holdfast.core.base.fsm import next_state
from holdfast.core.base.values import Kind, LeaseId, ProviderId, TaskId, Term
from holdfast.core.job.job_class import denied_until, job_class
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import AckLease, DeclineLease, ExpireDue, FailLease, LeaseClosed, RenewLease
from holdfast.core.lease.model import LEASE_TRANSITIONS, LeaseStatus, LeaseTransition, is_live
from holdfast.core.policy import LeasePolicy, Policy, QuotaPolicy
from holdfast.core.policy_change.decide import QUOTA_LOWERED, leases_over_quota
from holdfast.core.policy_change.messages import AdoptPolicy, PolicyAdopted
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.queue.quota import units_used
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

T_MS = {"AI": 600_000, "QUANTUM": 180_000}


def leased(kind: str = "AI", **policy_parts: msgspec.Struct) -> tuple[CoreDriver, TaskId, LeaseId, ProviderId]:
    core = fleet(policy=lenient_policy(12, **policy_parts))
    job = enqueue_job(core, kind=kind)
    core.match()
    lease = core.lease_of(job)
    return core, job, lease.id, lease.provider_id


def refusal(outcome: tuple[Event, ...] | Refused) -> str:
    return outcome.rule if isinstance(outcome, Refused) else ""


# ------------------------------------------------------------------------------------------------ timers


@pytest.mark.rule("LEA-002")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
def test_a_lease_lasts_as_long_as_its_kind_says_and_is_to_be_renewed_after_six_tenths(kind: str) -> None:
    core, job, *_ = leased(kind)
    lease, t_ms = core.lease_of(job), T_MS[kind]
    assert (lease.t_start_ms, lease.t_deadline_ms) == (BEGIN_MS, BEGIN_MS + t_ms)
    assert (lease.renew_by_ms, lease.ack_by_ms) == (BEGIN_MS + t_ms * 6 // 10, BEGIN_MS + 5_000)
    assert lease.status is LeaseStatus.ACTIVE


@pytest.mark.rule("LEA-002")
def test_the_life_of_a_lease_is_one_table_and_what_is_over_stays_over() -> None:
    assert unreachable_states(LEASE_TRANSITIONS, LeaseStatus.ACTIVE) == frozenset()
    for over in (LeaseStatus.CANCELLED, LeaseStatus.EXPIRED, LeaseStatus.COMPLETED):
        assert [next_state(LEASE_TRANSITIONS, over, act) for act in LeaseTransition] == [None] * len(LeaseTransition)


@pytest.mark.rule("LEA-003")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize(("at_ms", "is_over"), [(4_999, False), (5_000, True), (5_001, True)])
def test_a_lease_without_an_ack_is_cancelled_when_its_time_is_over(kind: str, at_ms: int, is_over: bool) -> None:
    core, job, *_ = leased(kind)
    core.now_ms += at_ms
    events = core.do(ExpireDue())
    assert bool(events) is is_over
    if is_over:
        assert isinstance(events[0], LeaseClosed)
        assert (events[0].status, events[0].reason) == (LeaseStatus.CANCELLED, "ACK_TIMEOUT")
        assert core.state.queue.jobs[job].failures == 1


@pytest.mark.rule("LEA-003")
@pytest.mark.parametrize(
    "make", [AckLease, DeclineLease, FailLease, lambda id_, provider: RenewLease(id_, provider, 1)]
)
@pytest.mark.parametrize(("at_ms", "rule"), [(4_999, ""), (5_000, "LEA-003")])
def test_what_was_never_acked_is_lost_at_its_time_though_nobody_reaped_it_yet(
    make: type, at_ms: int, rule: str
) -> None:
    core, _, id_, provider = leased()
    core.now_ms += at_ms
    assert refusal(core.ask(make(id_, provider))) == rule


@pytest.mark.rule("LEA-003", "RCV-001")
@pytest.mark.parametrize(("at_ms", "rule"), [(4_999, ""), (5_000, "LEA-003")])
def test_what_was_never_acked_is_submitted_before_its_time_or_not_at_all(at_ms: int, rule: str) -> None:
    core, job, id_, provider = leased()
    core.now_ms += at_ms
    assert refusal(core.ask(SubmitCompletion(id_, provider, completion_envelope(core, job)))) == rule


@pytest.mark.rule("LEA-003", "RCV-001")
def test_completing_counts_as_an_ack() -> None:
    core, job, id_, provider = leased()
    core.now_ms += 4_999
    core.do(SubmitCompletion(id_, provider, completion_envelope(core, job)))
    assert core.lease_of(job).acked_ms == core.now_ms
    core.now_ms += 100_000
    assert core.do(ExpireDue()) == ()


@pytest.mark.rule("LEA-004")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize(("early_ms", "is_taken"), [(1, True), (0, False), (-1, False)])
def test_a_lease_is_renewed_until_its_deadline_and_never_after(kind: str, early_ms: int, is_taken: bool) -> None:
    core, job, id_, provider = leased(kind)
    core.ack(job)
    core.now_ms = core.lease_of(job).t_deadline_ms - early_ms
    assert refusal(core.ask(RenewLease(id_, provider, 1))) == ("" if is_taken else "LEA-005")


@pytest.mark.rule("LEA-004")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
def test_four_renewals_of_half_its_length_each_and_not_one_more(kind: str) -> None:
    core, job, id_, provider = leased(kind)
    core.ack(job)
    lease, t_ms = core.lease_of(job), T_MS[kind]
    for renewal in range(1, 5):
        core.now_ms = lease.renew_by_ms - 1
        core.do(RenewLease(id_, provider, renewal))
        assert lease.t_deadline_ms == BEGIN_MS + t_ms + renewal * t_ms // 2
    assert (lease.status, lease.late_renewals) == (LeaseStatus.RENEWED, 0)
    assert refusal(core.ask(RenewLease(id_, provider, 5))) == "LEA-004"
    assert refusal(core.ask(RenewLease(id_, provider, 9))) == "LEA-004"


@pytest.mark.rule("LEA-005")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize("renewals", [0, 1])
@pytest.mark.parametrize(("late_ms", "is_over"), [(-1, False), (0, True), (1, True)])
def test_at_its_deadline_a_lease_is_expired_and_the_job_waits(
    kind: str, renewals: int, late_ms: int, is_over: bool
) -> None:
    core, job, id_, provider = leased(kind)
    core.ack(job)
    for renewal in range(1, renewals + 1):
        core.do(RenewLease(id_, provider, renewal))
    lease = core.lease_of(job)
    core.now_ms = lease.t_deadline_ms + late_ms
    assert is_live(lease, core.now_ms) is not is_over
    events = core.do(ExpireDue())
    assert [type(event) for event in events[:1]] == ([LeaseClosed] if is_over else [])
    if is_over:
        assert (lease.status, lease.reason) == (LeaseStatus.EXPIRED, "LEASE_EXPIRED")
        assert core.state.queue.jobs[job].state is JobState.QUEUED


@pytest.mark.rule("LEA-001")
def test_every_lease_of_a_job_has_another_name_and_attempts_go_on_counting() -> None:
    core = fleet(3)
    job = enqueue_job(core)
    names = set()
    for attempt in range(4):
        retry_job(core, job)
        lease = core.lease_of(job)
        assert lease.attempt == attempt
        names.add(lease.id)
        fail_lease(core, job)
    assert len(names) == 4


# ------------------------------------------------------------------------------------------------ declined, denied


@pytest.mark.rule("LEA-006")
@pytest.mark.parametrize(("later_ms", "is_asked_again"), [(29_999, False), (30_000, True)])
def test_who_declines_is_passed_over_for_jobs_of_that_class_for_a_while(later_ms: int, is_asked_again: bool) -> None:
    core, job, id_, provider = leased()
    core.do(DeclineLease(id_, provider))
    found = core.state.queue.jobs[job]
    assert (found.state, found.failures, found.not_before_ms) == (JobState.QUEUED, 0, core.now_ms)
    assert (
        denied_until(core.state.class_denials, provider, job_class(found.kind, found.requirements)) == BEGIN_MS + 30_000
    )
    assert denied_until(core.state.class_denials, provider, job_class(Kind.QUANTUM, found.requirements)) == 0
    core.now_ms += later_ms
    core.match()
    assert (job in core.state.leases.by_job) is is_asked_again


@pytest.mark.rule("LEA-006")
def test_another_provider_and_another_class_are_not_held_up_by_a_decline() -> None:
    core, job, id_, provider = leased()
    quantum = enqueue_job(core, 2, "QUANTUM")
    core.do(DeclineLease(id_, provider))
    core.match()
    assert core.lease_of(quantum).provider_id == provider
    other = join_provider(core, 2)
    core.match()
    assert core.lease_of(job).provider_id == other


@pytest.mark.rule("LEA-006")
def test_without_a_cooldown_a_decline_denies_nothing() -> None:
    core, _, id_, provider = leased(lease=LeasePolicy(decline_cooldown_ms=0))
    core.do(DeclineLease(id_, provider))
    assert core.state.class_denials == {}


@pytest.mark.rule("RTY-003")
@pytest.mark.parametrize(("reason", "lasts_ms"), [("LEASE_EXPIRED", 60_000), ("ACK_TIMEOUT", 0), ("PROVIDER_FAIL", 0)])
def test_a_lease_that_ran_out_keeps_its_provider_from_such_jobs_for_an_interval(reason: str, lasts_ms: int) -> None:
    core, job, id_, provider = leased()
    if reason == "PROVIDER_FAIL":
        closed = core.do(FailLease(id_, provider))[0]
    else:
        if reason == "LEASE_EXPIRED":
            core.ack(job)
        core.now_ms = core.lease_of(job).t_deadline_ms if reason == "LEASE_EXPIRED" else BEGIN_MS + 5_000
        closed = core.do(ExpireDue())[0]
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.denied_until_ms) == (reason, core.now_ms + lasts_ms if lasts_ms else 0)
    assert len(core.state.class_denials) == bool(lasts_ms)


@pytest.mark.rule("LEA-006")
def test_denials_that_are_over_are_forgotten_and_those_that_count_stay() -> None:
    core = fleet(1, slots=1_000, policy=lenient_policy(quota=QuotaPolicy(leases_per_provider_max=1_000)))
    (provider,) = core.state.providers
    core.state.class_denials.update({bytes([n, 7]): BEGIN_MS + 10 for n in range(255)})
    core.state.class_denials[b"still counts"] = BEGIN_MS + 10**9
    core.now_ms += 10
    enqueue_job(core)
    core.match()
    lease = next(iter(core.state.leases.by_id.values()))
    core.do(DeclineLease(lease.id, provider))
    assert len(core.state.class_denials) == 2
    assert b"still counts" in core.state.class_denials


# ------------------------------------------------------------------------------------------------ the system cancels


@pytest.mark.rule("LEA-007")
def test_a_lowered_cap_cancels_the_newest_leases_without_blame_and_retries_at_once() -> None:
    core = fleet(1, slots=6)
    for nonce in range(6):
        enqueue_job(core, nonce)
    core.match()
    (provider,) = core.state.providers
    before = core.state.leases.of(provider)
    policy = msgspec.structs.replace(core.state.policy, quota=QuotaPolicy(leases_per_provider_max=4))
    first, *closed = core.do(AdoptPolicy(policy))
    assert isinstance(first, PolicyAdopted)
    assert [each.id for each in closed] == [before[5].id, before[4].id]  # type: ignore[attr-defined]
    for each in closed:
        assert isinstance(each, LeaseClosed)
        assert (each.status, each.reason) == (LeaseStatus.CANCELLED, QUOTA_LOWERED)
        assert (each.is_failure, each.not_before_ms) == (False, core.now_ms)
    jobs = [core.state.queue.jobs[each.job_id] for each in before]
    assert [job.failures for job in jobs] == [0] * 6
    assert core.state.providers[provider].failed == 0
    assert core.match() == ()  # there is no room above the cap
    assert leases_over_quota(core.state, provider, policy.quota) == []


@pytest.mark.rule("LEA-007", "RCV-001")
def test_what_was_submitted_is_not_cancelled_by_a_lowered_cap() -> None:
    core = fleet(1)
    jobs = [enqueue_job(core, nonce) for nonce in range(3)]
    core.match()
    leases = sorted((core.lease_of(job) for job in jobs), key=lambda lease: lease.event)
    newest = leases[-1]
    core.do(SubmitCompletion(newest.id, newest.provider_id, completion_envelope(core, newest.job_id)))
    policy = msgspec.structs.replace(core.state.policy, quota=QuotaPolicy(leases_per_provider_max=1))
    core.do(AdoptPolicy(policy))
    assert list(core.state.leases.by_id) == [newest.id]
    core.do(RecordVerdict(newest.id, is_good=True))
    assert core.state.queue.jobs[newest.job_id].state is JobState.COMPLETED


@pytest.mark.rule("LEA-007", "QUO-001")
def test_lowered_units_cancel_leases_of_that_kind_alone() -> None:
    core = fleet(1, slots=8)
    for nonce, kind in enumerate(["AI", "QUANTUM", "AI", "QUANTUM", "AI"]):
        enqueue_job(core, nonce, kind, units=10)
    core.match()
    policy = msgspec.structs.replace(core.state.policy, quota=QuotaPolicy(ai_units_per_epoch=20))
    _, *closed = core.do(AdoptPolicy(policy))
    assert len(closed) == 1
    (provider,) = core.state.providers
    assert units_used(core.state.quotas, provider, Kind.AI, 0) == 20
    assert units_used(core.state.quotas, provider, Kind.QUANTUM, 0) == 20


@pytest.mark.rule("LEA-007", "LEA-002", "RCV-002")
def test_when_one_attempt_completed_no_other_lives_and_what_comes_later_is_ignored() -> None:
    core = fleet(2)
    job = enqueue_job(core)
    core.match()
    lost = core.lease_of(job)
    late = completion_envelope(core, job, b"too late")
    fail_lease(core, job)
    retry_job(core, job)
    won = core.lease_of(job)
    core.do(SubmitCompletion(won.id, won.provider_id, completion_envelope(core, job, b"first")))
    core.do(RecordVerdict(won.id, is_good=True))
    assert job not in core.state.leases.by_job
    before = core.state.queue.jobs[job]
    told = (before.state, before.charged, before.ended_ms)
    core.ask(SubmitCompletion(lost.id, lost.provider_id, late))
    core.ask(SubmitCompletion(won.id, won.provider_id, late))
    assert (before.state, before.charged, before.ended_ms) == told
    core.now_ms += 10_000_000
    assert core.match() == ()


# ------------------------------------------------------------------------------------------------ outages


@pytest.mark.rule("LEA-008")
@pytest.mark.parametrize("deadline_field", ["ack_by_ms", "t_deadline_ms"])
@pytest.mark.parametrize(("late_ms", "is_over"), [(-1, False), (0, True)])
def test_every_deadline_is_honoured_to_the_millisecond_by_whoever_folds_the_journal(
    deadline_field: str, late_ms: int, is_over: bool
) -> None:
    core, job, *_ = leased()
    if deadline_field == "t_deadline_ms":
        core.ack(job)
    copy, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), Policy())
    again = CoreDriver(copy)
    again.now_ms = BEGIN_MS + 1_000 + 30_000
    state_machine.apply(copy, OwnershipTaken(Term(2), "node", "", 30_000, again.now_ms))
    lease = again.lease_of(job)
    again.now_ms = getattr(lease, deadline_field) + late_ms
    assert bool(again.do(ExpireDue())) is is_over
    assert getattr(lease, deadline_field) == getattr(core.lease_of(job), deadline_field) + 30_000
