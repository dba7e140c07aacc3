"""Matching: seeded, in order, to the first who fits; every no can be told, and what nobody fits is left alone."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive
from tests.core.core_driver import ALICE, BEGIN_MS, CoreDriver
from tests.counts import counts

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import Amount, ProviderId, TaskId, Tier
from holdfast.core.job.model import Job
from holdfast.core.lease.messages import JobAssigned
from holdfast.core.match.decide import tick_seed
from holdfast.core.match.eligibility import why_not_available, why_not_fit
from holdfast.core.match.messages import Match
from holdfast.core.proof.messages import RecordVerdict
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue, RaiseFee
from holdfast.engine.queries.quote import quote


def three_providers(slots: int = 2) -> CoreDriver:
    core = CoreDriver()
    core.funded()
    for number in (1, 2, 3):
        core.provider(number, slots=slots)
    core.seal()
    return core


@pytest.mark.rule("MAT-002", "MAT-006")
def test_every_filter_that_needs_no_job_has_a_name() -> None:
    core = CoreDriver()
    id_ = core.provider()
    policy, now_ms = core.state.policy, core.now_ms
    sound = core.state.providers[id_]
    assert why_not_available(sound, policy, now_ms) is None
    broken: dict[str, dict[str, object]] = {
        "status": {"status": "SUSPENDED"},
        "attestation": {"attested_until_ms": now_ms - 180_000},
        "stake": {"stake": 9_999},
        "health": {"health_ppm": 599_999},
        "heartbeat": {"heartbeat_ms": now_ms - 180_000},
        "draining": {"is_draining": 1},
        "cooling": {"cooling_until_ms": now_ms + 1},
    }
    for name, change in broken.items():
        why = why_not_available(msgspec.structs.replace(sound, **change), policy, now_ms)
        assert why is not None
        assert name in why
    just = {"attested_until_ms": now_ms - 179_999, "stake": 10_000, "health_ppm": 600_000, "cooling_until_ms": now_ms}
    assert why_not_available(msgspec.structs.replace(sound, **just), policy, now_ms) is None


@pytest.mark.rule("MAT-002", "MAT-006")
def test_every_filter_that_asks_for_the_job_has_a_name() -> None:
    core = CoreDriver()
    core.funded()
    provider = core.state.providers[core.provider()]
    policy = core.state.policy

    def why(change: dict[str, object] | None = None, **payload: object) -> str | None:
        job = core.state.queue.jobs[core.enqueue(nonce=len(core.state.queue.jobs), **payload)]  # type: ignore[arg-type]
        return why_not_fit(msgspec.structs.replace(provider, **(change or {})), job, policy)

    assert why() is None
    assert why({"leases": 4}) == "no free slot"
    assert why({"leases": 3}) is None
    assert why(model="other") == "model does not fit"
    assert why({"price": 50}) is None
    assert why({"price": 51}) == "price 51 for a unit, the fee pays 50"
    assert why({"price": 51, "prices": canonical({"echo": 50})}) is None
    assert why({"price": 50, "prices": canonical({"echo": 51})}) == "price 51 for a unit, the fee pays 50"


@pytest.mark.rule("MAT-002", "JOB-008", "ESC-001")
def test_who_is_too_expensive_gets_the_job_when_its_fee_was_raised_and_is_paid_its_price() -> None:
    core = CoreDriver()
    core.funded()
    core.provider(price=50)
    job = core.enqueue(max_fee=99)
    assert core.match() == ()
    assert asked_price(core, job) == "price 50 for a unit, the fee pays 49"
    core.do(RaiseFee(job, Amount(100)))
    assert [event.price for event in core.match() if isinstance(event, JobAssigned)] == [50]
    assert asked_price(core, job) is None
    core.submit(job)
    core.do(RecordVerdict(core.lease_of(job).id, is_good=True))
    assert core.state.queue.jobs[job].charged == 100


def asked_price(core: CoreDriver, job: TaskId) -> str | None:
    """What a quote says of the only provider."""
    asked = quote(core.state, core.state.queue.jobs[job])
    asked.add_providers(core.state, core.state.providers.values(), core.state.queue.jobs[job], core.now_ms)
    return next((each.why_not for each in asked.refused), None)


@pytest.mark.rule("MAT-002", "LEA-009")
@pytest.mark.parametrize(("price", "given"), [(3, 3), (4, 0)])
def test_a_replica_pays_no_more_than_its_part_of_the_fee(price: int, given: int) -> None:
    core = CoreDriver()
    core.funded()
    for number in (1, 2, 3):
        core.provider(number, price=price)
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2, "quorum": {"n": 2, "m": 3}}
    command = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload, 15, 1)
    assert isinstance(command, Enqueue)
    core.do(command)
    assert len(core.match()) == given


@pytest.mark.rule("MAT-003")
def test_the_first_in_the_shuffled_order_who_fits_gets_the_first_job() -> None:
    core = three_providers()
    jobs = [core.enqueue(nonce, max_fee=100 + nonce) for nonce in range(4)]
    seed = tick_seed(core.state)
    order = naive.shuffle(sorted(core.state.providers), naive.words(seed))
    given_to = [(event.job_id, event.provider_id) for event in core.match() if isinstance(event, JobAssigned)]
    by_fee = list(reversed(jobs))
    assert given_to == [(by_fee[0], order[0]), (by_fee[1], order[0]), (by_fee[2], order[1]), (by_fee[3], order[1])]


@pytest.mark.rule("PRI-003")
def test_jobs_go_by_their_key_then_by_age_then_by_id_and_a_raised_fee_moves_one_forward() -> None:
    core = CoreDriver()
    core.funded()
    jobs: list[Job] = []
    for nonce, fee in enumerate((10, 900_000 // 2, 10, 77)):
        jobs.append(core.state.queue.jobs[core.enqueue(nonce, max_fee=fee)])
        core.now_ms += 1
    expected = sorted(jobs, key=lambda job: (-job.priority, job.enqueue_ms, job.id))
    assert list(core.state.queue.ready_queue.in_order()) == [job.id for job in expected]
    core.do(RaiseFee(jobs[2].id, Amount(500_000)))
    assert next(core.state.queue.ready_queue.in_order()) == jobs[2].id


@pytest.mark.rule("MAT-004")
def test_a_job_that_nobody_fits_stays_and_uses_up_no_place_of_the_batch() -> None:
    core = three_providers(slots=100)
    core.state.policy = msgspec.structs.replace(
        core.state.policy, match=msgspec.structs.replace(core.state.policy.match, batch_jobs_max=2)
    )
    strange = core.enqueue(0, max_fee=900_000, model="other")
    others = [core.enqueue(nonce) for nonce in (1, 2, 3)]
    assert len(core.match()) == 2
    assert len(core.match()) == 1
    before = core.state.last_event
    assert core.match() == ()
    assert core.state.last_event == before
    assert strange in core.state.queue.ready_queue.in_order()
    assert all(job in core.state.leases.by_job for job in others)


@pytest.mark.rule("MAT-001", "MAT-003")
@settings(max_examples=counts(30, 2_000), deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 12), st.integers(0, 3))
def test_a_tick_equals_a_naive_reading_of_the_rules(slots: list[int], jobs: int, blocks: int) -> None:
    core = CoreDriver()
    core.funded()
    for number, count in enumerate(slots, start=1):
        core.provider(number, slots=count)
    core.seal(blocks)
    for nonce in range(jobs):
        core.enqueue(nonce, max_fee=10 + 7 * nonce % 5)
    free = {id_: each.slots for id_, each in core.state.providers.items()}
    order = [ProviderId(id_) for id_ in naive.shuffle(sorted(free), naive.words(tick_seed(core.state)))]
    expected = []
    waiting = sorted(core.state.queue.jobs.values(), key=lambda job: (-job.priority, job.enqueue_ms, job.id))
    for job in waiting:
        taker = next((id_ for id_ in order if free[id_]), None)
        if taker is not None:
            free[taker] -= 1
            expected.append((job.id, taker))
    made = [(event.job_id, event.provider_id) for event in core.do(Match()) if isinstance(event, JobAssigned)]
    assert made == expected
    loads = Counter(provider for _, provider in made)
    assert all(core.state.providers[id_].leases == loads[id_] <= core.state.providers[id_].slots for id_ in free)
    assert core.now_ms == BEGIN_MS
