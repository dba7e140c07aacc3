"""Matching: seeded, in order, to the first who fits; every no can be told, and what nobody fits is left alone."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive
from tests.core.ways import BEGIN_MS, Way
from tests.counts import counts

from holdfast.core.job.record import Job
from holdfast.core.lease.acts import JobAssigned
from holdfast.core.match.decide import Match, tick_seed
from holdfast.core.match.fit import why_not_fit, why_not_listed
from holdfast.core.queue.acts import RaiseFee
from holdfast.core.values import Amount, ProviderId


def three_providers(slots: int = 2) -> Way:
    way = Way()
    way.funded()
    for number in (1, 2, 3):
        way.provider(number, slots=slots)
    way.seal()
    return way


@pytest.mark.rule("MAT-002", "MAT-006")
def test_every_filter_that_needs_no_job_has_a_name() -> None:
    way = Way()
    id_ = way.provider()
    policy, now_ms = way.state.policy, way.now_ms
    sound = way.state.providers[id_]
    assert why_not_listed(sound, policy, now_ms) is None
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
        why = why_not_listed(msgspec.structs.replace(sound, **change), policy, now_ms)
        assert why is not None
        assert name in why
    just = {"attested_until_ms": now_ms - 179_999, "stake": 10_000, "health_ppm": 600_000, "cooling_until_ms": now_ms}
    assert why_not_listed(msgspec.structs.replace(sound, **just), policy, now_ms) is None


@pytest.mark.rule("MAT-002", "MAT-006")
def test_every_filter_that_asks_for_the_job_has_a_name() -> None:
    way = Way()
    way.funded()
    provider = way.state.providers[way.provider()]
    policy = way.state.policy

    def why(change: dict[str, object] | None = None, **payload: object) -> str | None:
        job = way.state.queue.jobs[way.enqueue(nonce=len(way.state.queue.jobs), **payload)]  # type: ignore[arg-type]
        return why_not_fit(msgspec.structs.replace(provider, **(change or {})), job, policy)

    assert why() is None
    assert why({"leases": 4}) == "no free slot"
    assert why({"leases": 3}) is None
    assert why(model="other") == "model does not fit"


@pytest.mark.rule("MAT-003")
def test_the_first_in_the_shuffled_order_who_fits_gets_the_first_job() -> None:
    way = three_providers()
    jobs = [way.enqueue(nonce, max_fee=100 + nonce) for nonce in range(4)]
    seed = tick_seed(way.state)
    order = naive.shuffle(sorted(way.state.providers), naive.words(seed))
    given_to = [(event.job_id, event.provider_id) for event in way.match() if isinstance(event, JobAssigned)]
    by_fee = list(reversed(jobs))
    assert given_to == [(by_fee[0], order[0]), (by_fee[1], order[0]), (by_fee[2], order[1]), (by_fee[3], order[1])]


@pytest.mark.rule("PRI-003")
def test_jobs_go_by_their_key_then_by_age_then_by_id_and_a_raised_fee_moves_one_forward() -> None:
    way = Way()
    way.funded()
    jobs: list[Job] = []
    for nonce, fee in enumerate((10, 900_000 // 2, 10, 77)):
        jobs.append(way.state.queue.jobs[way.enqueue(nonce, max_fee=fee)])
        way.now_ms += 1
    expected = sorted(jobs, key=lambda job: (-job.priority, job.enqueue_ms, job.id))
    assert list(way.state.queue.line.in_order()) == [job.id for job in expected]
    way.do(RaiseFee(jobs[2].id, Amount(500_000)))
    assert next(way.state.queue.line.in_order()) == jobs[2].id


@pytest.mark.rule("MAT-004")
def test_a_job_that_nobody_fits_stays_and_uses_up_no_place_of_the_batch() -> None:
    way = three_providers(slots=100)
    way.state.policy = msgspec.structs.replace(
        way.state.policy, match=msgspec.structs.replace(way.state.policy.match, batch_jobs_max=2)
    )
    strange = way.enqueue(0, max_fee=900_000, model="other")
    others = [way.enqueue(nonce) for nonce in (1, 2, 3)]
    assert len(way.match()) == 2
    assert len(way.match()) == 1
    before = way.state.last_event
    assert way.match() == ()
    assert way.state.last_event == before
    assert strange in way.state.queue.line.in_order()
    assert all(job in way.state.leases.by_job for job in others)


@pytest.mark.rule("MAT-001", "MAT-003")
@settings(max_examples=counts(30, 2_000), deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 12), st.integers(0, 3))
def test_a_tick_equals_a_naive_reading_of_the_rules(slots: list[int], jobs: int, blocks: int) -> None:
    way = Way()
    way.funded()
    for number, count in enumerate(slots, start=1):
        way.provider(number, slots=count)
    way.seal(blocks)
    for nonce in range(jobs):
        way.enqueue(nonce, max_fee=10 + 7 * nonce % 5)
    free = {id_: each.slots for id_, each in way.state.providers.items()}
    order = [ProviderId(id_) for id_ in naive.shuffle(sorted(free), naive.words(tick_seed(way.state)))]
    expected = []
    waiting = sorted(way.state.queue.jobs.values(), key=lambda job: (-job.priority, job.enqueue_ms, job.id))
    for job in waiting:
        taker = next((id_ for id_ in order if free[id_]), None)
        if taker is not None:
            free[taker] -= 1
            expected.append((job.id, taker))
    made = [(event.job_id, event.provider_id) for event in way.do(Match()) if isinstance(event, JobAssigned)]
    assert made == expected
    loads = Counter(provider for _, provider in made)
    assert all(way.state.providers[id_].leases == loads[id_] <= way.state.providers[id_].slots for id_ in free)
    assert way.now_ms == BEGIN_MS
