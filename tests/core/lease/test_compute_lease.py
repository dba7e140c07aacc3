"""A COMPUTE job lives like an AI job: stake, lease, time to live, retry and units are as theirs, counted apart."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.fleet import enqueue_job, exhaust_attempts, fleet

from holdfast.core.base.values import Kind
from holdfast.core.job.model import JobState
from holdfast.core.proof.envelope import ProofType
from holdfast.core.proof.nullifier_link import PROOF_TYPES
from holdfast.core.provider.model import stake_min, unattested_kinds
from holdfast.core.queue.quota import units_max, units_used


@pytest.mark.rule("QUO-001", "LEA-002", "TTL-001", "RTY-002")
def test_its_lease_lasts_as_long_and_its_units_are_counted_apart() -> None:
    core = fleet()
    job, other = enqueue_job(core, kind="COMPUTE"), enqueue_job(core, nonce=2)
    core.match()
    policy, provider = core.state.policy, core.lease_of(job).provider_id
    leases = [core.lease_of(each) for each in (job, other)]
    assert {lease.t_deadline_ms - lease.t_start_ms for lease in leases} == {policy.lease.ai_ms}
    jobs = [core.state.queue.jobs[each] for each in (job, other)]
    assert {each.expires_ms - each.enqueue_ms for each in jobs} == {policy.ttl.ai_ms}
    assert [units_used(core.state.quotas, provider, kind, 0) for kind in Kind] == [2, 0, 2]
    assert units_max(Kind.COMPUTE, policy.quota) == policy.quota.ai_units_per_epoch
    exhaust_attempts(core, job)
    assert core.state.queue.jobs[job].state is JobState.FAILED
    assert units_used(core.state.quotas, provider, Kind.COMPUTE, 0) == 0


@pytest.mark.rule("PRF-001", "MAT-002")
def test_its_proof_has_type_3_and_its_provider_the_stake_of_ai() -> None:
    assert PROOF_TYPES[Kind.COMPUTE] is ProofType(3)
    policy = fleet().state.policy.provider
    assert stake_min(["AI", "COMPUTE"], policy) == 2 * policy.stake_ai_min


@pytest.mark.rule("PRV-005")
def test_its_provider_needs_the_attestors_of_ai() -> None:
    core = fleet()
    (provider,) = core.state.providers.values()
    policy = msgspec.structs.replace(core.state.policy.provider, attestors_required_ai=("tpm",))
    assert unattested_kinds(provider, policy) == ("AI", "COMPUTE")
    assert unattested_kinds(msgspec.structs.replace(provider, attestor="tpm"), policy) == ()
