"""What keeps matching fair and cheap: starvation guard, quotas, windows of requesters, and ticks that are not made."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.ways import ALICE, Way

from holdfast.core import law
from holdfast.core.event import Event, Tip
from holdfast.core.lease.acts import DeclineLease, JobAssigned
from holdfast.core.match.decide import Match, is_worthwhile
from holdfast.core.match.fairness import RequestersCounted
from holdfast.core.match.fit import why_not
from holdfast.core.policy import MatchOrder
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.queue.pauses import PauseKind, ResumeKind
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import AccountId, Kind, TaskId, Tier

BOB = AccountId("bob")


def turned(way: Way, part: str = "match", **knobs: object) -> None:
    policy = way.state.policy
    way.state.policy = msgspec.structs.replace(
        policy, **{part: msgspec.structs.replace(getattr(policy, part), **knobs)}
    )


def jobs_of(events: tuple[Event, ...]) -> list[TaskId]:
    return [event.job_id for event in events if isinstance(event, JobAssigned)]


def ready(slots: int = 16, providers: int = 1) -> Way:
    way = Way()
    way.funded()
    way.funded(BOB)
    for number in range(providers):
        way.provider(number + 1, slots=slots)
    return way


def enqueue(way: Way, nonce: int, caller: AccountId = ALICE, fee: int = 100, tier: Tier = Tier.FREE) -> TaskId:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
    command = prepare(way.state.policy, caller, tier, payload, fee, nonce)
    assert isinstance(command, Enqueue)
    way.do(command)
    return next(reversed(way.state.queue.jobs))


def rising(way: Way, count: int, first: int = 0) -> list[TaskId]:
    """Jobs that come one after the other, each worth more than the ones before."""
    jobs = []
    for nonce in range(first, first + count):
        jobs.append(enqueue(way, nonce, fee=100 + 10 * nonce))
        way.now_ms += 1
    return jobs


@pytest.mark.rule("MAT-005")
@pytest.mark.parametrize("every", [1, 2, 3, 20])
def test_every_kth_assignment_ever_goes_to_the_oldest_job_over_ticks_and_restarts(every: int) -> None:
    way = ready(slots=8)
    turned(way, interleave_every=every, batch_jobs_max=2)
    jobs = rising(way, 8)
    waiting, order = jobs.copy(), list[TaskId]()
    while waiting:
        given = jobs_of(way.match())
        for job in given:
            is_turn = (len(order) + 1) % every == 0
            assert job == (waiting[0] if is_turn else waiting[-1])
            waiting.remove(job)
            order.append(job)
        policy = way.state.policy
        way.state, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), policy)
    assert way.state.assignments == 8


@pytest.mark.rule("MAT-005")
def test_without_a_k_the_oldest_waits_like_everybody() -> None:
    way = ready(slots=3)
    turned(way, interleave_every=0)
    jobs = rising(way, 4)
    assert jobs_of(way.match()) == [jobs[3], jobs[2], jobs[1]]


@pytest.mark.rule("MAT-004", "MAT-005")
def test_an_old_job_that_nobody_fits_neither_gets_the_guards_turn_nor_uses_it_up() -> None:
    way = ready(slots=3)
    turned(way, interleave_every=1)
    strange = way.enqueue(0, max_fee=900_000, model="other")
    way.now_ms += 1
    jobs = rising(way, 2, first=1)
    assert jobs_of(way.match()) == jobs
    assert (way.state.assignments, strange in way.state.queue.line.in_order()) == (2, True)


@pytest.mark.rule("QUO-001")
def test_a_provider_has_as_many_leases_as_its_slots_and_never_more_than_the_quota() -> None:
    for slots, quota, expected in ((3, 16, 3), (17, 16, 16), (16, 16, 16), (0, 16, 0), (5, 1, 1)):
        way = ready(slots=max(1, slots))
        turned(way, "quota", leases_per_provider_max=quota)
        provider = next(iter(way.state.providers.values()))
        provider.slots = slots
        way.state.stale.add(provider.id)
        for nonce in range(20):
            way.enqueue(nonce)
        assert len(way.match()) == expected
        assert way.match() == ()


@pytest.mark.rule("QUO-001", "MAT-004")
def test_units_of_an_epoch_run_out_and_come_back_with_the_next_one() -> None:
    way = ready()
    turned(way, "quota", ai_units_per_epoch=5)
    turned(way, "chain", epoch_blocks=2)
    for nonce in range(3):
        enqueue(way, nonce)  # two units each
    assert len(way.match()) == 2
    waiting = next(way.state.queue.line.in_order())
    provider = next(iter(way.state.providers.values()))
    why = why_not(way.state, provider, way.state.queue.jobs[waiting], way.now_ms)
    assert why == "4 of 5 units of this epoch used, 2 more asked for"
    assert not is_worthwhile(way.state, way.now_ms)
    way.seal()
    assert way.match() == ()
    way.seal()
    assert jobs_of(way.match()) == [waiting]


@pytest.mark.rule("MAT-003")
@pytest.mark.parametrize(("order", "loads"), [("shuffle", [4, 2, 0]), ("spread", [2, 2, 2])])
def test_shuffle_fills_one_after_the_other_and_spread_all_alike(order: str, loads: list[int]) -> None:
    way = ready(slots=4, providers=3)
    turned(way, order=MatchOrder(order), interleave_every=0)
    for nonce in range(6):
        way.enqueue(nonce)
    way.match()
    assert sorted((each.leases for each in way.state.providers.values()), reverse=True) == loads


# ------------------------------------------------------------------------------------------------ requesters


@pytest.mark.rule("MAT-005")
def test_a_requester_gets_no_more_than_its_window_until_the_window_rolls() -> None:
    way = ready()
    turned(way, requester_window_ms=60_000, requester_window_jobs_max=2)
    rich = [enqueue(way, nonce, ALICE, fee=10_000) for nonce in range(4)]
    poor = enqueue(way, 10, BOB, fee=1)
    events = way.match()
    assert sorted(jobs_of(events)) == sorted([*(job for job in rich if job in way.state.leases.by_job), poor])
    assert len(jobs_of(events)) == 3
    assert isinstance(events[-1], RequestersCounted)
    assert events[-1].counts == {ALICE: 2, BOB: 1}
    left = next(way.state.queue.line.in_order())
    why = why_not(way.state, next(iter(way.state.providers.values())), way.state.queue.jobs[left], way.now_ms)
    assert why == "alice was given 2 jobs within 60000 ms, at most 2"
    way.now_ms += 59_999
    assert not is_worthwhile(way.state, way.now_ms)
    assert way.match() == ()
    way.now_ms += 1
    assert is_worthwhile(way.state, way.now_ms)
    assert len(jobs_of(way.match())) == 2


@pytest.mark.rule("MAT-005")
def test_a_tier_has_as_many_windows_as_its_weight_and_a_weight_of_zero_is_no_limit() -> None:
    for tier, expected in ((Tier.FREE, 1), (Tier.PRO, 3), (Tier.PREMIUM, 6)):
        way = ready()
        turned(way, requester_weight_pro=3, requester_weight_premium=0)
        turned(way, requester_window_ms=1_000, requester_window_jobs_max=1)
        for nonce in range(6):
            enqueue(way, nonce, tier=tier)
        assert len(jobs_of(way.match())) == expected


@pytest.mark.rule("MAT-005")
def test_windows_are_forgotten_when_they_have_rolled_and_survive_a_restart_until_then() -> None:
    way = ready()
    turned(way, requester_window_ms=1_000, requester_window_jobs_max=1)
    enqueue(way, 1, ALICE)
    way.match()
    kept, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)
    assert (list(kept.windows), digest(kept)) == ([ALICE], digest(way.state))
    way.now_ms += 1_000
    enqueue(way, 2, BOB)
    way.match()
    assert list(way.state.windows) == [BOB]


def test_a_history_without_windows_says_nothing_of_them() -> None:
    way = ready()
    way.enqueue()
    assert [type(event) for event in way.match()] == [JobAssigned]
    assert not way.state.windows


# ------------------------------------------------------------------------------------------------ ticks not made


@pytest.mark.rule("MAT-007")
def test_a_tick_is_worth_it_again_only_when_something_could_come_of_it() -> None:
    way = ready(slots=1)
    first, second = way.enqueue(1), way.enqueue(2)
    assert is_worthwhile(way.state, way.now_ms)
    given = jobs_of(way.match())
    assert not is_worthwhile(way.state, way.now_ms), "nobody is free"
    lease = way.lease_of(given[0])
    way.complete(given[0])
    assert is_worthwhile(way.state, way.now_ms), "a slot was freed"
    other = second if given[0] == first else first
    assert jobs_of(way.match()) == [other]
    assert lease.id not in way.state.leases.by_id


@pytest.mark.rule("MAT-007", "LEA-006")
def test_who_declined_is_asked_again_when_its_time_is_over_and_not_before() -> None:
    way = ready()
    job = way.enqueue()
    way.match()
    lease = way.lease_of(job)
    way.do(DeclineLease(lease.id, lease.provider_id))
    assert way.match() == ()
    assert not is_worthwhile(way.state, way.now_ms)
    way.now_ms += way.state.policy.lease.decline_cooldown_ms - 1
    assert not is_worthwhile(way.state, way.now_ms)
    way.now_ms += 1
    assert is_worthwhile(way.state, way.now_ms)
    assert jobs_of(way.match()) == [job]


@pytest.mark.rule("MAT-004", "MAT-007")
def test_a_kind_that_is_paused_waits_and_goes_on_when_it_is_resumed() -> None:
    way = ready()
    way.do(PauseKind(Kind.AI))
    job = way.enqueue()
    assert way.match() == ()
    assert not is_worthwhile(way.state, way.now_ms)
    way.do(ResumeKind(Kind.AI))
    assert jobs_of(way.match()) == [job]


@pytest.mark.rule("MAT-007")
def test_what_was_decided_but_never_happened_is_decided_again() -> None:
    way = ready()
    way.enqueue()
    decided = law.decide(way.state, Match(), way.now_ms)
    assert law.decide(way.state, Match(), way.now_ms) == decided


def test_an_index_of_another_state_is_never_taken_over() -> None:
    way = ready()
    way.enqueue()
    way.match()
    fresh = State(way.state.policy)
    assert not fresh.supply.seats
    assert fresh.supply is not way.state.supply
