"""What keeps matching fair and cheap: starvation guard, quotas, windows of requesters, and ticks that are not made."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.core_driver import ALICE, CoreDriver

from holdfast.core import state_machine
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event, JournalHead
from holdfast.core.base.values import AccountId, Kind, TaskId, Tier
from holdfast.core.job.spec import ParsedPayload, read_payload
from holdfast.core.lease.messages import DeclineLease, JobAssigned
from holdfast.core.match.decide import can_assign
from holdfast.core.match.eligibility import Profile, why_not_able, why_not_eligible
from holdfast.core.match.messages import Match, RequestersCounted
from holdfast.core.policy import MatchOrder
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.queue.pauses import PauseKind, ResumeKind
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

BOB = AccountId("bob")


def change_policy(core: CoreDriver, part: str = "match", **settings: object) -> None:
    policy = core.state.policy
    core.state.policy = msgspec.structs.replace(
        policy, **{part: msgspec.structs.replace(getattr(policy, part), **settings)}
    )


def jobs_of(events: tuple[Event, ...]) -> list[TaskId]:
    return [event.job_id for event in events if isinstance(event, JobAssigned)]


def ready(slots: int = 16, providers: int = 1) -> CoreDriver:
    core = CoreDriver()
    core.funded()
    core.funded(BOB)
    for number in range(providers):
        core.provider(number + 1, slots=slots)
    return core


def enqueue(core: CoreDriver, nonce: int, caller: AccountId = ALICE, fee: int = 100, tier: Tier = Tier.FREE) -> TaskId:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
    command = build_enqueue(core.state.policy, caller, tier, payload, fee, nonce)
    assert isinstance(command, Enqueue)
    core.do(command)
    return list(core.state.queue.jobs)[-1]


def rising(core: CoreDriver, count: int, first: int = 0) -> list[TaskId]:
    """Jobs that come one after the other, each worth more than the ones before."""
    jobs = []
    for nonce in range(first, first + count):
        jobs.append(enqueue(core, nonce, fee=100 + 10 * nonce))
        core.now_ms += 1
    return jobs


@pytest.mark.rule("MAT-005")
@pytest.mark.parametrize("every", [1, 2, 3, 20])
def test_every_kth_assignment_ever_goes_to_the_oldest_job_over_ticks_and_restarts(every: int) -> None:
    core = ready(slots=8)
    change_policy(core, interleave_every=every, batch_jobs_max=2)
    jobs = rising(core, 8)
    waiting, order = jobs.copy(), list[TaskId]()
    while waiting:
        given = jobs_of(core.match())
        for job in given:
            is_turn = (len(order) + 1) % every == 0
            assert job == (waiting[0] if is_turn else waiting[-1])
            waiting.remove(job)
            order.append(job)
        policy = core.state.policy
        core.state, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), policy)
    assert core.state.assignments == 8


@pytest.mark.rule("MAT-005")
def test_without_a_k_the_oldest_waits_like_everybody() -> None:
    core = ready(slots=3)
    change_policy(core, interleave_every=0)
    jobs = rising(core, 4)
    assert jobs_of(core.match()) == [jobs[3], jobs[2], jobs[1]]


@pytest.mark.rule("MAT-004", "MAT-005")
def test_an_old_job_that_nobody_fits_neither_gets_the_guards_turn_nor_uses_it_up() -> None:
    core = ready(slots=3)
    change_policy(core, interleave_every=1)
    strange = core.enqueue(0, max_fee=900_000, model="other")
    core.now_ms += 1
    jobs = rising(core, 2, first=1)
    assert jobs_of(core.match()) == jobs
    assert (core.state.assignments, strange in core.state.queue.ready_queue.in_order()) == (2, True)


@pytest.mark.rule("QUO-001")
def test_a_provider_has_as_many_leases_as_its_slots_and_never_more_than_the_quota() -> None:
    for slots, quota, expected in ((3, 16, 3), (17, 16, 16), (16, 16, 16), (0, 16, 0), (5, 1, 1)):
        core = ready(slots=max(1, slots))
        change_policy(core, "quota", leases_per_provider_max=quota)
        provider = next(iter(core.state.providers.values()))
        provider.slots = slots
        core.state.changed_providers.add(provider.id)
        for nonce in range(20):
            core.enqueue(nonce)
        assert len(core.match()) == expected
        assert core.match() == ()


@pytest.mark.rule("QUO-001", "MAT-004")
def test_units_of_an_epoch_run_out_and_come_back_with_the_next_one() -> None:
    core = ready()
    change_policy(core, "quota", ai_units_per_epoch=5)
    change_policy(core, "chain", epoch_blocks=2)
    for nonce in range(3):
        enqueue(core, nonce)  # two units each
    assert len(core.match()) == 2
    waiting = next(core.state.queue.ready_queue.in_order())
    provider = next(iter(core.state.providers.values()))
    why = why_not_eligible(core.state, provider, core.state.queue.jobs[waiting], core.now_ms)
    assert why == "4 of 5 units of this epoch used, 2 more needed"
    assert not can_assign(core.state, core.now_ms)
    core.seal()
    assert core.match() == ()
    core.seal()
    assert jobs_of(core.match()) == [waiting]


@pytest.mark.rule("MAT-003")
@pytest.mark.parametrize(("order", "loads"), [("shuffle", [4, 2, 0]), ("spread", [2, 2, 2])])
def test_shuffle_fills_one_after_the_other_and_spread_all_alike(order: str, loads: list[int]) -> None:
    core = ready(slots=4, providers=3)
    change_policy(core, order=MatchOrder(order), interleave_every=0)
    for nonce in range(6):
        core.enqueue(nonce)
    core.match()
    assert sorted((each.leases for each in core.state.providers.values()), reverse=True) == loads


# ------------------------------------------------------------------------------------------------ requesters


@pytest.mark.rule("MAT-005")
def test_a_requester_gets_no_more_than_its_window_until_the_window_rolls() -> None:
    core = ready()
    change_policy(core, requester_window_ms=60_000, requester_window_jobs_max=2)
    rich = [enqueue(core, nonce, ALICE, fee=10_000) for nonce in range(4)]
    poor = enqueue(core, 10, BOB, fee=10)
    events = core.match()
    assert sorted(jobs_of(events)) == sorted([*(job for job in rich if job in core.state.leases.by_job), poor])
    assert len(jobs_of(events)) == 3
    assert isinstance(events[-1], RequestersCounted)
    assert events[-1].counts == {ALICE: 2, BOB: 1}
    left = next(core.state.queue.ready_queue.in_order())
    why = why_not_eligible(
        core.state, next(iter(core.state.providers.values())), core.state.queue.jobs[left], core.now_ms
    )
    assert why == "alice was given 2 jobs within 60000 ms, at most 2"
    core.now_ms += 59_999
    assert not can_assign(core.state, core.now_ms)
    assert core.match() == ()
    core.now_ms += 1
    assert can_assign(core.state, core.now_ms)
    assert len(jobs_of(core.match())) == 2


@pytest.mark.rule("MAT-005")
def test_a_tier_has_as_many_windows_as_its_weight_and_a_weight_of_zero_is_no_limit() -> None:
    for tier, expected in ((Tier.FREE, 1), (Tier.PRO, 3), (Tier.PREMIUM, 6)):
        core = ready()
        change_policy(core, requester_weight_pro=3, requester_weight_premium=0)
        change_policy(core, requester_window_ms=1_000, requester_window_jobs_max=1)
        for nonce in range(6):
            enqueue(core, nonce, tier=tier)
        assert len(jobs_of(core.match())) == expected


@pytest.mark.rule("MAT-005")
def test_windows_are_forgotten_when_they_have_rolled_and_survive_a_restart_until_then() -> None:
    core = ready()
    change_policy(core, requester_window_ms=1_000, requester_window_jobs_max=1)
    enqueue(core, 1, ALICE)
    core.match()
    kept, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    assert (list(kept.requester_windows), digest(kept)) == ([ALICE], digest(core.state))
    core.now_ms += 1_000
    enqueue(core, 2, BOB)
    core.match()
    assert list(core.state.requester_windows) == [BOB]


def test_a_history_without_windows_says_nothing_of_them() -> None:
    core = ready()
    core.enqueue()
    assert [type(event) for event in core.match()] == [JobAssigned]
    assert not core.state.requester_windows


# ------------------------------------------------------------------------------------------------ ticks not made


@pytest.mark.rule("MAT-007")
def test_a_tick_is_worth_it_again_only_when_something_could_come_of_it() -> None:
    core = ready(slots=1)
    first, second = core.enqueue(1), core.enqueue(2)
    assert can_assign(core.state, core.now_ms)
    given = jobs_of(core.match())
    assert not can_assign(core.state, core.now_ms), "nobody is free"
    lease = core.lease_of(given[0])
    core.complete(given[0])
    assert can_assign(core.state, core.now_ms), "a slot was freed"
    other = second if given[0] == first else first
    assert jobs_of(core.match()) == [other]
    assert lease.id not in core.state.leases.by_id


@pytest.mark.rule("MAT-007", "LEA-006")
def test_who_declined_is_asked_again_when_its_time_is_over_and_not_before() -> None:
    core = ready()
    job = core.enqueue()
    core.match()
    lease = core.lease_of(job)
    core.do(DeclineLease(lease.id, lease.provider_id))
    assert core.match() == ()
    assert not can_assign(core.state, core.now_ms)
    core.now_ms += core.state.policy.lease.decline_cooldown_ms - 1
    assert not can_assign(core.state, core.now_ms)
    core.now_ms += 1
    assert can_assign(core.state, core.now_ms)
    assert jobs_of(core.match()) == [job]


@pytest.mark.rule("MAT-004", "MAT-007")
def test_a_kind_that_is_paused_waits_and_goes_on_when_it_is_resumed() -> None:
    core = ready()
    core.do(PauseKind(Kind.AI))
    job = core.enqueue()
    assert core.match() == ()
    assert not can_assign(core.state, core.now_ms)
    core.do(ResumeKind(Kind.AI))
    assert jobs_of(core.match()) == [job]


@pytest.mark.rule("MAT-007")
def test_what_was_decided_but_never_happened_is_decided_again() -> None:
    core = ready()
    core.enqueue()
    decided = state_machine.decide(core.state, Match(), core.now_ms)
    assert state_machine.decide(core.state, Match(), core.now_ms) == decided


def test_an_index_of_another_state_is_never_taken_over() -> None:
    core = ready()
    core.enqueue()
    core.match()
    fresh = State(core.state.policy)
    assert not fresh.provider_index.entries
    assert fresh.provider_index is not core.state.provider_index


@pytest.mark.rule("MAT-002", "JOB-008")
@pytest.mark.parametrize(
    ("declared", "required", "why"),
    [
        ({"gpu": "a100"}, {"gpu": "a100"}, None),
        ({"gpu": "a100", "disk": "nvme"}, {"gpu": "a100"}, None),
        ({"gpu": "h100"}, {"gpu": "a100"}, "label gpu=h100, not a100"),
        ({"gpu": "a100"}, {"gpu": "a100", "disk": "nvme"}, "label disk=(none), not nvme"),
        ({}, {"gpu": "a100"}, "label gpu=(none), not a100"),
        ({"gpu": "a100"}, {}, None),
    ],
)
def test_a_job_goes_only_to_providers_with_all_its_labels(
    declared: dict[str, str], required: dict[str, str], why: str | None
) -> None:
    value = {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}, "labels": required}
    parsed = read_payload(value)
    assert isinstance(parsed, ParsedPayload)
    can = {"models": ["m"]} | ({"labels": declared} if declared else {})
    profile = Profile(canonical({"AI": can}), "", "", 0, b"", ())
    assert why_not_able(profile, Kind.AI, parsed.requirements) == why


@pytest.mark.rule("JOB-003")
@pytest.mark.parametrize("labels", [{"gpu": ""}, {"": "x"}, {"gpu": 1}, {f"n{n}": "x" for n in range(17)}, ["gpu"]])
def test_malformed_labels_are_refused_with_their_path(labels: object) -> None:
    refused = read_payload({"kind": "AI", "spec": {"model": "m", "prompt": "hi"}, "labels": labels})
    assert isinstance(refused, Refused)
    assert "payload.labels" in refused.message
