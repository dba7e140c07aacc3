"""Quotas: so many leases at a time, so many units in an epoch; reserved, kept or free again, and never used twice."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.fleet import asked_for, fleet, given_back, patient, sent

from holdfast.core import law
from holdfast.core.adopt import AdoptPolicy
from holdfast.core.chain.acts import RollBack
from holdfast.core.event import Tip
from holdfast.core.lease.acts import JobAssigned
from holdfast.core.match.decide import Match
from holdfast.core.policy import ChainPolicy, QuotaPolicy
from holdfast.core.policy.limits import RANGES
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.quota import Quota, units_used
from holdfast.core.state import digest, snapshot
from holdfast.core.values import Height, Kind


@pytest.mark.rule("QUO-001")
def test_sixteen_leases_are_as_many_as_a_provider_holds() -> None:
    way = fleet(1, slots=100)
    for nonce in range(20):
        asked_for(way, nonce)
    way.match()
    (provider,) = way.state.providers
    assert len(way.state.leases.of(provider)) == 16
    assert [lease.event for lease in way.state.leases.of(provider)] == sorted(
        lease.event for lease in way.state.leases.by_id.values()
    )


@pytest.mark.rule("QUO-001")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize(("units", "is_leased"), [(9, True), (10, True), (11, False)])
def test_units_are_reserved_at_the_lease_up_to_the_epochs_quota(kind: str, units: int, is_leased: bool) -> None:
    way = fleet(1, policy=patient(quota=QuotaPolicy(ai_units_per_epoch=30, quantum_units_per_epoch=30)))
    first, second = asked_for(way, 1, kind, units=20, max_fee=1_000), asked_for(way, 2, kind, units=units)
    way.match()
    assert first in way.state.leases.by_job
    assert (second in way.state.leases.by_job) is is_leased
    (provider,) = way.state.providers
    assert units_used(way.state.quotas, provider, Kind(kind), 0) == 20 + (units if is_leased else 0)


@pytest.mark.rule("QUO-001", "ENG-004")
def test_what_the_largest_quota_lets_through_fits_a_row_and_a_snapshot() -> None:
    most = {path: high for path, _, high in RANGES}["quota.ai_units_per_epoch"]
    way = fleet(1, slots=16, policy=patient(quota=QuotaPolicy(ai_units_per_epoch=most)))
    for nonce in range(8):
        asked_for(way, nonce, units=2**62)
    way.match()
    (provider,) = way.state.providers
    assert 0 < units_used(way.state.quotas, provider, Kind.AI, 0) < 2**63
    assert snapshot(way.state, Tip())


@pytest.mark.rule("QUO-001")
def test_units_are_committed_when_the_work_is_done_and_free_again_when_it_is_not() -> None:
    way = fleet(1)
    (provider,) = way.state.providers
    kept, lost = asked_for(way, 1, units=5), asked_for(way, 2, units=7)
    way.match()
    assert way.state.quotas[provider] == Quota(provider, 0, ai_reserved=12)
    given_back(way, lost)
    assert way.state.quotas[provider] == Quota(provider, 0, ai_reserved=5)
    lease = way.lease_of(kept)
    way.do(Submit(lease.id, provider, sent(way, kept)))
    assert way.state.quotas[provider] == Quota(provider, 0, ai_reserved=5)
    way.do(Judge(lease.id, is_good=True))
    assert way.state.quotas[provider] == Quota(provider, 0, ai_committed=5)
    assert way.state.touched["provider_quota"][provider] == way.state.quotas[provider]


@pytest.mark.rule("QUO-001")
def test_a_reservation_belongs_to_the_epoch_in_which_its_lease_began() -> None:
    way = fleet(1, policy=patient(chain=ChainPolicy(epoch_blocks=2, finality_depth=12)))
    (provider,) = way.state.providers
    old = asked_for(way, 1, units=5)
    way.match()
    way.seal(2)
    new = asked_for(way, 2, units=3)
    way.match()
    assert (way.lease_of(old).epoch, way.lease_of(new).epoch) == (0, 1)
    assert way.state.quotas[provider] == Quota(provider, 1, ai_reserved=3)
    given_back(way, old)  # of an epoch that is over: nothing of the new one comes free
    assert way.state.quotas[provider] == Quota(provider, 1, ai_reserved=3)


@pytest.mark.rule("QUO-001", "CHN-003")
def test_a_rollback_into_an_earlier_epoch_gives_nobody_more_units() -> None:
    way = fleet(1, policy=patient(chain=ChainPolicy(epoch_blocks=2, finality_depth=12)))
    (provider,) = way.state.providers
    way.seal(2)
    asked_for(way, 1, units=3)
    way.match()
    way.do(RollBack(Height(0)))
    assert units_used(way.state.quotas, provider, Kind.AI, 0) == 3
    job = asked_for(way, 2, units=4)
    way.match()
    assert way.lease_of(job).epoch == 1
    assert way.state.quotas[provider] == Quota(provider, 1, ai_reserved=7)


@pytest.mark.rule("QUO-001")
def test_epochs_of_another_length_go_on_with_what_is_used() -> None:
    way = fleet(2, slots=1, policy=patient(chain=ChainPolicy(epoch_blocks=2, finality_depth=12)))
    way.do(AdoptPolicy(way.state.policy))
    asked_for(way, 1, units=3)
    way.match()
    (early,) = way.state.leases.by_id.values()
    way.seal(9)
    asked_for(way, 2, units=4)
    way.match()
    late = next(each for each in way.state.leases.by_id.values() if each is not early)
    assert (early.epoch, late.epoch) == (0, 4)
    longer = msgspec.structs.replace(way.state.policy, chain=ChainPolicy(epoch_blocks=3, finality_depth=12))
    way.do(AdoptPolicy(longer))
    assert (early.units, late.units, late.epoch) == (0, 4, 3)
    assert way.state.quotas == {late.provider_id: Quota(late.provider_id, 3, ai_reserved=4)}
    given_back(way, late.job_id)
    given_back(way, early.job_id)
    assert way.state.quotas == {late.provider_id: Quota(late.provider_id, 3)}


@pytest.mark.rule("QUO-001", "CAN-005")
def test_a_lease_from_before_there_were_quotas_takes_and_gives_nothing() -> None:
    way = fleet()
    job = asked_for(way)
    way.match()
    given_back(way, job)
    way.now_ms = way.state.queue.jobs[job].not_before_ms
    way.state.quotas.clear()
    (made,) = (event for event in law.decide(way.state, Match(), way.now_ms).events)  # type: ignore[union-attr]
    assert isinstance(made, JobAssigned)
    law.apply(way.state, msgspec.structs.replace(made, units=0, epoch=0))
    given_back(way, job)
    assert way.state.quotas == {}
    assert len(digest(way.state)) == 32
