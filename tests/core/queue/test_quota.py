"""Quotas: so many leases at a time, so many units in an epoch; reserved, kept or free again, and never used twice."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.fleet import completion_envelope, enqueue_job, fail_lease, fleet, lenient_policy

from holdfast.core import state_machine
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import Height, Kind
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.lease.messages import JobAssigned
from holdfast.core.match.messages import Match
from holdfast.core.policy import ChainPolicy, QuotaPolicy
from holdfast.core.policy.limits import RANGES
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.queue.quota import Quota, units_used
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import snapshot


@pytest.mark.rule("QUO-001")
def test_sixteen_leases_are_as_many_as_a_provider_holds() -> None:
    core = fleet(1, slots=100)
    for nonce in range(20):
        enqueue_job(core, nonce)
    core.match()
    (provider,) = core.state.providers
    assert len(core.state.leases.of(provider)) == 16
    assert [lease.event for lease in core.state.leases.of(provider)] == sorted(
        lease.event for lease in core.state.leases.by_id.values()
    )


@pytest.mark.rule("QUO-001")
@pytest.mark.parametrize("kind", ["AI", "QUANTUM"])
@pytest.mark.parametrize(("units", "is_leased"), [(9, True), (10, True), (11, False)])
def test_units_are_reserved_at_the_lease_up_to_the_epochs_quota(kind: str, units: int, is_leased: bool) -> None:
    core = fleet(1, policy=lenient_policy(quota=QuotaPolicy(ai_units_per_epoch=30, quantum_units_per_epoch=30)))
    first, second = enqueue_job(core, 1, kind, units=20, max_fee=1_000), enqueue_job(core, 2, kind, units=units)
    core.match()
    assert first in core.state.leases.by_job
    assert (second in core.state.leases.by_job) is is_leased
    (provider,) = core.state.providers
    assert units_used(core.state.quotas, provider, Kind(kind), 0) == 20 + (units if is_leased else 0)


@pytest.mark.rule("QUO-001", "ENG-004")
def test_what_the_largest_quota_lets_through_fits_a_row_and_a_snapshot() -> None:
    most = {path: high for path, _, high in RANGES}["quota.ai_units_per_epoch"]
    core = fleet(1, slots=16, policy=lenient_policy(quota=QuotaPolicy(ai_units_per_epoch=most)))
    for nonce in range(8):
        enqueue_job(core, nonce, units=2**62)
    (provider,) = core.state.providers
    core.state.providers[provider].price = 0  # no fee pays so many units
    core.state.changed_providers.add(provider)
    core.match()
    assert 0 < units_used(core.state.quotas, provider, Kind.AI, 0) < 2**63
    assert snapshot(core.state, JournalHead())


@pytest.mark.rule("QUO-001")
def test_units_are_committed_when_the_work_is_done_and_free_again_when_it_is_not() -> None:
    core = fleet(1)
    (provider,) = core.state.providers
    kept, lost = enqueue_job(core, 1, units=5), enqueue_job(core, 2, units=7)
    core.match()
    assert core.state.quotas[provider] == Quota(provider, 0, ai_reserved=12)
    fail_lease(core, lost)
    assert core.state.quotas[provider] == Quota(provider, 0, ai_reserved=5)
    lease = core.lease_of(kept)
    core.do(SubmitCompletion(lease.id, provider, completion_envelope(core, kept)))
    assert core.state.quotas[provider] == Quota(provider, 0, ai_reserved=5)
    core.do(RecordVerdict(lease.id, is_good=True))
    assert core.state.quotas[provider] == Quota(provider, 0, ai_committed=5)
    assert core.state.touched["provider_quota"][provider] == core.state.quotas[provider]


@pytest.mark.rule("QUO-001")
def test_a_reservation_belongs_to_the_epoch_in_which_its_lease_began() -> None:
    core = fleet(1, policy=lenient_policy(chain=ChainPolicy(epoch_blocks=2, finality_depth=12)))
    (provider,) = core.state.providers
    old = enqueue_job(core, 1, units=5)
    core.match()
    core.seal(2)
    new = enqueue_job(core, 2, units=3)
    core.match()
    assert (core.lease_of(old).epoch, core.lease_of(new).epoch) == (0, 1)
    assert core.state.quotas[provider] == Quota(provider, 1, ai_reserved=3)
    fail_lease(core, old)  # of an epoch that is over: nothing of the new one comes free
    assert core.state.quotas[provider] == Quota(provider, 1, ai_reserved=3)


@pytest.mark.rule("QUO-001", "CHN-003")
def test_a_rollback_into_an_earlier_epoch_gives_nobody_more_units() -> None:
    core = fleet(1, policy=lenient_policy(chain=ChainPolicy(epoch_blocks=2, finality_depth=12)))
    (provider,) = core.state.providers
    core.seal(2)
    enqueue_job(core, 1, units=3)
    core.match()
    core.do(RollBackBlocks(Height(0)))
    assert units_used(core.state.quotas, provider, Kind.AI, 0) == 3
    job = enqueue_job(core, 2, units=4)
    core.match()
    assert core.lease_of(job).epoch == 1
    assert core.state.quotas[provider] == Quota(provider, 1, ai_reserved=7)


@pytest.mark.rule("QUO-001")
def test_epochs_of_another_length_go_on_with_what_is_used() -> None:
    core = fleet(2, slots=1, policy=lenient_policy(chain=ChainPolicy(epoch_blocks=2, finality_depth=12)))
    core.do(AdoptPolicy(core.state.policy))
    enqueue_job(core, 1, units=3)
    core.match()
    (early,) = core.state.leases.by_id.values()
    core.seal(9)
    enqueue_job(core, 2, units=4)
    core.match()
    late = next(each for each in core.state.leases.by_id.values() if each is not early)
    assert (early.epoch, late.epoch) == (0, 4)
    longer = msgspec.structs.replace(core.state.policy, chain=ChainPolicy(epoch_blocks=3, finality_depth=12))
    core.do(AdoptPolicy(longer))
    assert (early.units, late.units, late.epoch) == (0, 4, 3)
    assert core.state.quotas == {late.provider_id: Quota(late.provider_id, 3, ai_reserved=4)}
    fail_lease(core, late.job_id)
    fail_lease(core, early.job_id)
    assert core.state.quotas == {late.provider_id: Quota(late.provider_id, 3)}


@pytest.mark.rule("QUO-001", "CAN-005")
def test_a_lease_from_before_there_were_quotas_takes_and_gives_nothing() -> None:
    core = fleet()
    job = enqueue_job(core)
    core.match()
    fail_lease(core, job)
    core.now_ms = core.state.queue.jobs[job].not_before_ms
    core.state.quotas.clear()
    (made,) = (event for event in state_machine.decide(core.state, Match(), core.now_ms).events)  # type: ignore[union-attr]
    assert isinstance(made, JobAssigned)
    state_machine.apply(core.state, msgspec.structs.replace(made, units=0, epoch=0))
    fail_lease(core, job)
    assert core.state.quotas == {}
    assert len(digest(core.state)) == 32
