"""Assignment and lease: every timer just before, at and just after its mark; renewals, cancellations, quotas."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.fleet import asked_for, fleet, given_back, joined, patient, sent, tried_again
from tests.core.ways import BEGIN_MS, Way

from holdfast.core import law
from holdfast.core.adopt import QUOTA_LOWERED, AdoptPolicy, PolicyAdopted, beyond
from holdfast.core.event import Event, OwnershipTaken, Tip
from holdfast.core.job.klass import denied_until, job_class
from holdfast.core.job.record import JobState
from holdfast.core.lease.acts import AckLease, DeclineLease, FailLease, LeaseClosed, Reap, RenewLease
from holdfast.core.lease.record import LEASE_LIFE, LeaseAct, LeaseStatus, is_live
from holdfast.core.machine import step, unreachable
from holdfast.core.policy import LeasePolicy, Policy, QuotaPolicy
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.quota import units_used
from holdfast.core.refusal import Refused
from holdfast.core.state import restore, snapshot
from holdfast.core.values import Epoch, Kind, LeaseId, ProviderId, TaskId

T_MS = {"AI": 600_000, "QUANTUM": 180_000}


def leased(kind: str = "AI", **knobs: msgspec.Struct) -> tuple[Way, TaskId, LeaseId, ProviderId]:
    way = fleet(policy=patient(12, **knobs))
    job = asked_for(way, kind=kind)
    way.match()
    lease = way.lease_of(job)
    return way, job, lease.id, lease.provider_id


def refusal(outcome: tuple[Event, ...] | Refused) -> str:
    return outcome.rule if isinstance(outcome, Refused) else ""


# ------------------------------------------------------------------------------------------------ timers


@pytest.mark.rule("LEA-002")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
def test_a_lease_lasts_as_long_as_its_kind_says_and_is_to_be_renewed_after_six_tenths(kind: str) -> None:
    way, job, *_ = leased(kind)
    lease, t_ms = way.lease_of(job), T_MS[kind]
    assert (lease.t_start_ms, lease.t_deadline_ms) == (BEGIN_MS, BEGIN_MS + t_ms)
    assert (lease.renew_by_ms, lease.ack_by_ms) == (BEGIN_MS + t_ms * 6 // 10, BEGIN_MS + 5_000)
    assert lease.status is LeaseStatus.ACTIVE


@pytest.mark.rule("LEA-002")
def test_the_life_of_a_lease_is_one_table_and_what_is_over_stays_over() -> None:
    assert unreachable(LEASE_LIFE, LeaseStatus.ACTIVE) == frozenset()
    for over in (LeaseStatus.CANCELLED, LeaseStatus.EXPIRED, LeaseStatus.COMPLETED):
        assert [step(LEASE_LIFE, over, act) for act in LeaseAct] == [None] * len(LeaseAct)


@pytest.mark.rule("LEA-003")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize(("at_ms", "is_over"), [(4_999, False), (5_000, True), (5_001, True)])
def test_a_lease_without_an_ack_is_cancelled_when_its_time_is_over(kind: str, at_ms: int, is_over: bool) -> None:
    way, job, *_ = leased(kind)
    way.now_ms += at_ms
    events = way.do(Reap())
    assert bool(events) is is_over
    if is_over:
        assert isinstance(events[0], LeaseClosed)
        assert (events[0].status, events[0].reason) == (LeaseStatus.CANCELLED, "ACK_TIMEOUT")
        assert way.state.queue.jobs[job].failures == 1


@pytest.mark.rule("LEA-003")
@pytest.mark.parametrize(
    "make", [AckLease, DeclineLease, FailLease, lambda id_, provider: RenewLease(id_, provider, 1)]
)
@pytest.mark.parametrize(("at_ms", "rule"), [(4_999, ""), (5_000, "LEA-003")])
def test_what_was_never_acked_is_lost_at_its_time_though_nobody_reaped_it_yet(
    make: type, at_ms: int, rule: str
) -> None:
    way, _, id_, provider = leased()
    way.now_ms += at_ms
    assert refusal(way.ask(make(id_, provider))) == rule


@pytest.mark.rule("LEA-003", "RCV-001")
@pytest.mark.parametrize(("at_ms", "rule"), [(4_999, ""), (5_000, "LEA-003")])
def test_what_was_never_acked_is_handed_in_before_its_time_or_not_at_all(at_ms: int, rule: str) -> None:
    way, job, id_, provider = leased()
    way.now_ms += at_ms
    assert refusal(way.ask(Submit(id_, provider, sent(way, job)))) == rule


@pytest.mark.rule("LEA-003", "RCV-001")
def test_completing_counts_as_an_ack() -> None:
    way, job, id_, provider = leased()
    way.now_ms += 4_999
    way.do(Submit(id_, provider, sent(way, job)))
    assert way.lease_of(job).acked_ms == way.now_ms
    way.now_ms += 100_000
    assert way.do(Reap()) == ()


@pytest.mark.rule("LEA-004")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize(("early_ms", "is_taken"), [(1, True), (0, False), (-1, False)])
def test_a_lease_is_renewed_until_its_deadline_and_never_after(kind: str, early_ms: int, is_taken: bool) -> None:
    way, job, id_, provider = leased(kind)
    way.ack(job)
    way.now_ms = way.lease_of(job).t_deadline_ms - early_ms
    assert refusal(way.ask(RenewLease(id_, provider, 1))) == ("" if is_taken else "LEA-005")


@pytest.mark.rule("LEA-004")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
def test_four_renewals_of_half_its_length_each_and_not_one_more(kind: str) -> None:
    way, job, id_, provider = leased(kind)
    way.ack(job)
    lease, t_ms = way.lease_of(job), T_MS[kind]
    for renewal in range(1, 5):
        way.now_ms = lease.renew_by_ms - 1
        way.do(RenewLease(id_, provider, renewal))
        assert lease.t_deadline_ms == BEGIN_MS + t_ms + renewal * t_ms // 2
    assert (lease.status, lease.late_renewals) == (LeaseStatus.RENEWED, 0)
    assert refusal(way.ask(RenewLease(id_, provider, 5))) == "LEA-004"
    assert refusal(way.ask(RenewLease(id_, provider, 9))) == "LEA-004"


@pytest.mark.rule("LEA-005")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize("renewals", [0, 1])
@pytest.mark.parametrize(("late_ms", "is_over"), [(-1, False), (0, True), (1, True)])
def test_at_its_deadline_a_lease_is_expired_and_the_job_waits(
    kind: str, renewals: int, late_ms: int, is_over: bool
) -> None:
    way, job, id_, provider = leased(kind)
    way.ack(job)
    for renewal in range(1, renewals + 1):
        way.do(RenewLease(id_, provider, renewal))
    lease = way.lease_of(job)
    way.now_ms = lease.t_deadline_ms + late_ms
    assert is_live(lease, way.now_ms) is not is_over
    events = way.do(Reap())
    assert [type(event) for event in events[:1]] == ([LeaseClosed] if is_over else [])
    if is_over:
        assert (lease.status, lease.reason) == (LeaseStatus.EXPIRED, "LEASE_EXPIRED")
        assert way.state.queue.jobs[job].state is JobState.QUEUED


@pytest.mark.rule("LEA-001")
def test_every_lease_of_a_job_has_another_name_and_attempts_go_on_counting() -> None:
    way = fleet(3)
    job = asked_for(way)
    names = set()
    for attempt in range(4):
        tried_again(way, job)
        lease = way.lease_of(job)
        assert lease.attempt == attempt
        names.add(lease.id)
        given_back(way, job)
    assert len(names) == 4


# ------------------------------------------------------------------------------------------------ declined, denied


@pytest.mark.rule("LEA-006")
@pytest.mark.parametrize(("later_ms", "is_asked_again"), [(29_999, False), (30_000, True)])
def test_who_declines_is_passed_over_for_jobs_of_that_class_for_a_while(later_ms: int, is_asked_again: bool) -> None:
    way, job, id_, provider = leased()
    way.do(DeclineLease(id_, provider))
    found = way.state.queue.jobs[job]
    assert (found.state, found.failures, found.not_before_ms) == (JobState.QUEUED, 0, way.now_ms)
    assert denied_until(way.state.denials, provider, job_class(found.kind, found.requirements)) == BEGIN_MS + 30_000
    assert denied_until(way.state.denials, provider, job_class(Kind.QUANTUM, found.requirements)) == 0
    way.now_ms += later_ms
    way.match()
    assert (job in way.state.leases.by_job) is is_asked_again


@pytest.mark.rule("LEA-006")
def test_another_provider_and_another_class_are_not_held_up_by_a_decline() -> None:
    way, job, id_, provider = leased()
    quantum = asked_for(way, 2, "QUANTUM")
    way.do(DeclineLease(id_, provider))
    way.match()
    assert way.lease_of(quantum).provider_id == provider
    other = joined(way, 2)
    way.match()
    assert way.lease_of(job).provider_id == other


@pytest.mark.rule("LEA-006")
def test_without_a_cooldown_a_decline_denies_nothing() -> None:
    way, _, id_, provider = leased(lease=LeasePolicy(decline_cooldown_ms=0))
    way.do(DeclineLease(id_, provider))
    assert way.state.denials == {}


@pytest.mark.rule("RTY-003")
@pytest.mark.parametrize(("reason", "lasts_ms"), [("LEASE_EXPIRED", 60_000), ("ACK_TIMEOUT", 0), ("PROVIDER_FAIL", 0)])
def test_a_lease_that_ran_out_keeps_its_provider_from_such_jobs_for_an_interval(reason: str, lasts_ms: int) -> None:
    way, job, id_, provider = leased()
    if reason == "PROVIDER_FAIL":
        closed = way.do(FailLease(id_, provider))[0]
    else:
        if reason == "LEASE_EXPIRED":
            way.ack(job)
        way.now_ms = way.lease_of(job).t_deadline_ms if reason == "LEASE_EXPIRED" else BEGIN_MS + 5_000
        closed = way.do(Reap())[0]
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.denied_until_ms) == (reason, way.now_ms + lasts_ms if lasts_ms else 0)
    assert len(way.state.denials) == bool(lasts_ms)


@pytest.mark.rule("LEA-006")
def test_denials_that_are_over_are_forgotten_and_those_that_count_stay() -> None:
    way = fleet(1, slots=1_000, policy=patient(quota=QuotaPolicy(leases_per_provider_max=1_000)))
    (provider,) = way.state.providers
    way.state.denials.update({bytes([n, 7]): BEGIN_MS + 10 for n in range(255)})
    way.state.denials[b"still counts"] = BEGIN_MS + 10**9
    way.now_ms += 10
    asked_for(way)
    way.match()
    lease = next(iter(way.state.leases.by_id.values()))
    way.do(DeclineLease(lease.id, provider))
    assert len(way.state.denials) == 2
    assert b"still counts" in way.state.denials


# ------------------------------------------------------------------------------------------------ the system cancels


@pytest.mark.rule("LEA-007")
def test_a_lowered_cap_cancels_the_newest_leases_without_blame_and_retries_at_once() -> None:
    way = fleet(1, slots=6)
    for nonce in range(6):
        asked_for(way, nonce)
    way.match()
    (provider,) = way.state.providers
    before = way.state.leases.of(provider)
    policy = msgspec.structs.replace(way.state.policy, quota=QuotaPolicy(leases_per_provider_max=4))
    first, *closed = way.do(AdoptPolicy(policy))
    assert isinstance(first, PolicyAdopted)
    assert [each.id for each in closed] == [before[5].id, before[4].id]  # type: ignore[attr-defined]
    for each in closed:
        assert isinstance(each, LeaseClosed)
        assert (each.status, each.reason) == (LeaseStatus.CANCELLED, QUOTA_LOWERED)
        assert (each.is_failure, each.not_before_ms) == (False, way.now_ms)
    jobs = [way.state.queue.jobs[each.job_id] for each in before]
    assert [job.failures for job in jobs] == [0] * 6
    assert way.state.providers[provider].failed == 0
    assert way.match() == ()  # there is no room above the cap
    assert beyond(way.state, provider, policy.quota) == []


@pytest.mark.rule("LEA-007", "RCV-001")
def test_what_was_handed_in_is_not_cancelled_by_a_lowered_cap() -> None:
    way = fleet(1)
    jobs = [asked_for(way, nonce) for nonce in range(3)]
    way.match()
    leases = sorted((way.lease_of(job) for job in jobs), key=lambda lease: lease.event)
    newest = leases[-1]
    way.do(Submit(newest.id, newest.provider_id, sent(way, newest.job_id)))
    policy = msgspec.structs.replace(way.state.policy, quota=QuotaPolicy(leases_per_provider_max=1))
    way.do(AdoptPolicy(policy))
    assert list(way.state.leases.by_id) == [newest.id]
    way.do(Judge(newest.id, is_good=True))
    assert way.state.queue.jobs[newest.job_id].state is JobState.COMPLETED


@pytest.mark.rule("LEA-007", "QUO-001")
def test_lowered_units_cancel_leases_of_that_kind_alone() -> None:
    way = fleet(1, slots=8)
    for nonce, kind in enumerate(["AI", "QUANTUM", "AI", "QUANTUM", "AI"]):
        asked_for(way, nonce, kind, units=10)
    way.match()
    policy = msgspec.structs.replace(way.state.policy, quota=QuotaPolicy(ai_units_per_epoch=20))
    _, *closed = way.do(AdoptPolicy(policy))
    assert len(closed) == 1
    (provider,) = way.state.providers
    assert units_used(way.state.quotas, provider, Kind.AI, 0) == 20
    assert units_used(way.state.quotas, provider, Kind.QUANTUM, 0) == 20


@pytest.mark.rule("LEA-007", "LEA-002", "RCV-002")
def test_when_one_attempt_completed_no_other_lives_and_what_comes_later_is_ignored() -> None:
    way = fleet(2)
    job = asked_for(way)
    way.match()
    lost = way.lease_of(job)
    late = sent(way, job, b"too late")
    given_back(way, job)
    tried_again(way, job)
    won = way.lease_of(job)
    way.do(Submit(won.id, won.provider_id, sent(way, job, b"first")))
    way.do(Judge(won.id, is_good=True))
    assert job not in way.state.leases.by_job
    before = way.state.queue.jobs[job]
    told = (before.state, before.charged, before.ended_ms)
    way.ask(Submit(lost.id, lost.provider_id, late))
    way.ask(Submit(won.id, won.provider_id, late))
    assert (before.state, before.charged, before.ended_ms) == told
    way.now_ms += 10_000_000
    assert way.match() == ()


# ------------------------------------------------------------------------------------------------ outages


@pytest.mark.rule("LEA-008")
@pytest.mark.parametrize("mark", ["ack_by_ms", "t_deadline_ms"])
@pytest.mark.parametrize(("late_ms", "is_over"), [(-1, False), (0, True)])
def test_every_deadline_is_honoured_to_the_millisecond_by_whoever_folds_the_journal(
    mark: str, late_ms: int, is_over: bool
) -> None:
    way, job, *_ = leased()
    if mark == "t_deadline_ms":
        way.ack(job)
    copy, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), Policy())
    again = Way(copy)
    again.now_ms = BEGIN_MS + 1_000 + 30_000
    law.apply(copy, OwnershipTaken(Epoch(2), "node", "", 30_000, again.now_ms))
    lease = again.lease_of(job)
    again.now_ms = getattr(lease, mark) + late_ms
    assert bool(again.do(Reap())) is is_over
    assert getattr(lease, mark) == getattr(way.lease_of(job), mark) + 30_000
