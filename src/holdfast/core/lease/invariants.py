"""What must hold of leases and quotas after every event (LEA-002, QUO-001)."""

from __future__ import annotations

from collections import Counter

from holdfast.core.base.values import Kind, ProviderId
from holdfast.core.job.model import JobState
from holdfast.core.lease.model import HasLeases, Lease, rebuild_leases
from holdfast.core.queue.quota import units_committed, units_max, units_reserved


def broken_invariants(state: HasLeases) -> list[str]:
    """The invariants of leases and quotas that do not hold."""
    leases, jobs, rebuilt = state.leases, state.queue.jobs, rebuild_leases(list(state.leases.by_id.values()))
    assigned = {job.id for job in jobs.values() if job.state is JobState.ASSIGNED}
    loads = Counter(lease.provider_id for lease in leases.by_id.values())
    checks = {
        "one live lease for every assigned job": assigned == set(leases.by_job),
        "the indexes of leases agree": (leases.by_job, leases.by_provider) == (rebuilt.by_job, rebuilt.by_provider),
        "every live lease is due at its deadline": _ids_by_bucket(leases.due_index.buckets)
        == _ids_by_bucket(rebuilt.due_index.buckets),
        "every provider counts its live leases": all(
            provider.leases == loads[id_] for id_, provider in state.providers.items()
        ),
        "only live leases wait for a verdict": set(state.submissions)
        == {id_ for id_, lease in leases.by_id.items() if lease.submitted is not None},
        "reserved units are those of live leases": all(
            _reserved(state, id_, kind) == _reserved_by_leases(state, id_, kind)
            for id_ in state.quotas
            for kind in Kind
        ),
        "no provider holds more leases than the quota": all(
            _is_within(leases.of(id_), loads[id_] - state.policy.quota.leases_per_provider_max) for id_ in loads
        ),
        "no provider holds more units than the quota": all(
            _is_within(
                _leases_of_epoch(state, id_, kind), _used(state, id_, kind) - units_max(kind, state.policy.quota)
            )
            for id_ in state.quotas
            for kind in Kind
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]


def _ids_by_bucket(buckets: dict[int, dict[bytes, None]]) -> dict[int, set[bytes]]:
    return {number: set(bucket) for number, bucket in buckets.items()}


def _is_within(held: list[Lease], excess: int) -> bool:
    """LEA-007: of leases above a lowered quota only submitted ones stay, until their verdict."""
    return excess <= 0 or all(lease.submitted is not None for lease in held)


def _leases_of_epoch(state: HasLeases, id_: ProviderId, kind: Kind) -> list[Lease]:
    held, epoch = state.leases.of(id_), state.quotas[id_].epoch
    return [
        lease for lease in held if lease.units and lease.epoch == epoch and state.queue.jobs[lease.job_id].kind is kind
    ]


def _reserved_by_leases(state: HasLeases, id_: ProviderId, kind: Kind) -> int:
    return sum(lease.units for lease in _leases_of_epoch(state, id_, kind))


def _reserved(state: HasLeases, id_: ProviderId, kind: Kind) -> int:
    return units_reserved(state.quotas[id_], kind)


def _used(state: HasLeases, id_: ProviderId, kind: Kind) -> int:
    return _reserved(state, id_, kind) + units_committed(state.quotas[id_], kind)
