"""What must hold of leases and quotas after every event (LEA-002, QUO-001)."""

from __future__ import annotations

from collections import Counter

from holdfast.core.base.values import Kind, ProviderId
from holdfast.core.job.model import JobState
from holdfast.core.lease.model import HasLeases, Lease, rebuild_leases
from holdfast.core.queue.quota import units_max, units_reserved, units_used


def broken_invariants(state: HasLeases) -> list[str]:
    """The invariants of leases and quotas that do not hold."""
    leases, jobs, rebuilt = state.leases, state.queue.jobs, rebuild_leases(list(state.leases.by_id.values()))
    assigned = {job.id for job in jobs.values() if job.state is JobState.ASSIGNED}
    quotas, leases_of_epoch = state.quotas, _leases_of_epoch(state)
    loads = Counter(lease.provider_id for lease in leases.by_id.values())
    checks = {
        "one live lease for every assigned job": assigned == set(leases.by_job),
        "the indexes of leases agree": (leases.by_job, leases.by_provider) == (rebuilt.by_job, rebuilt.by_provider),
        "every live lease is due at its deadline": leases.due_index.buckets == rebuilt.due_index.buckets,
        "every provider counts its live leases": all(
            provider.leases == loads[id_] for id_, provider in state.providers.items()
        ),
        "only live leases wait for a verdict": set(state.submissions)
        == {id_ for id_, lease in leases.by_id.items() if lease.submitted is not None},
        "reserved units are those of live leases": all(
            units_reserved(quotas[id_], kind) == sum(lease.units for lease in held)
            for (id_, kind), held in leases_of_epoch.items()
        ),
        "no provider holds more leases than the quota": all(
            _is_within(leases.of(id_), loads[id_] - state.policy.quota.leases_per_provider_max) for id_ in loads
        ),
        "no provider holds more units than the quota": all(
            _is_within(held, units_used(quotas, id_, kind, quotas[id_].epoch) - units_max(kind, state.policy.quota))
            for (id_, kind), held in leases_of_epoch.items()
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]


def _is_within(held: list[Lease], excess: int) -> bool:
    """LEA-007: of leases above a lowered quota only submitted ones stay, until their verdict."""
    return excess <= 0 or all(lease.submitted is not None for lease in held)


def _leases_of_epoch(state: HasLeases) -> dict[tuple[ProviderId, Kind], list[Lease]]:
    """The live leases whose units count in the epoch of their provider's quota."""
    return {
        (id_, kind): [
            lease
            for lease in state.leases.of(id_)
            if lease.units and lease.epoch == quota.epoch and state.queue.jobs[lease.job_id].kind is kind
        ]
        for id_, quota in state.quotas.items()
        for kind in Kind
    }
