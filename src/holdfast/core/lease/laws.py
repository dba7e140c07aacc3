"""What always holds of leases and quotas (LEA-002, QUO-001): said once, checked after every step of a test."""

from __future__ import annotations

from collections import Counter

from holdfast.core.job.record import JobState
from holdfast.core.lease.record import Lease, Leasing, collected
from holdfast.core.quota import units_max
from holdfast.core.values import Kind, ProviderId


def broken_laws(state: Leasing) -> list[str]:
    """Empty when all is well."""
    leases, jobs, again = state.leases, state.queue.jobs, collected(list(state.leases.by_id.values()))
    assigned = {job.id for job in jobs.values() if job.state is JobState.ASSIGNED}
    loads = Counter(lease.provider_id for lease in leases.by_id.values())
    checks = {
        "one live lease for every assigned job": assigned == set(leases.by_job),
        "the indexes of leases agree": (leases.by_job, leases.by_provider) == (again.by_job, again.by_provider),
        "every live lease comes due": _due(leases.agenda.buckets) == _due(again.agenda.buckets),
        "providers know their load": all(each.leases == loads[id_] for id_, each in state.providers.items()),
        "only live leases wait for a verdict": set(state.submissions)
        == {id_ for id_, lease in leases.by_id.items() if lease.submitted is not None},
        "what is reserved is what live leases reserved": all(
            _reserved(state, id_, kind) == _asked(state, id_, kind) for id_ in state.quotas for kind in Kind
        ),
        "nobody holds more leases than the quota": all(
            _is_within(leases.of(id_), loads[id_] - state.policy.quota.leases_per_provider_max) for id_ in loads
        ),
        "nobody holds more units than the quota": all(
            _is_within(_of_epoch(state, id_, kind), _used(state, id_, kind) - units_max(kind, state.policy.quota))
            for id_ in state.quotas
            for kind in Kind
        ),
    }
    return [law for law, holds in checks.items() if not holds]


def _due(buckets: dict[int, dict[bytes, None]]) -> dict[int, set[bytes]]:
    return {number: set(bucket) for number, bucket in buckets.items()}


def _is_within(held: list[Lease], excess: int) -> bool:
    """LEA-007: a quota that was lowered leaves what was handed in to its verdict, and nothing else."""
    return excess <= 0 or all(lease.submitted is not None for lease in held)


def _of_epoch(state: Leasing, id_: ProviderId, kind: Kind) -> list[Lease]:
    held, epoch = state.leases.of(id_), state.quotas[id_].epoch
    return [
        lease for lease in held if lease.units and lease.epoch == epoch and state.queue.jobs[lease.job_id].kind is kind
    ]


def _asked(state: Leasing, id_: ProviderId, kind: Kind) -> int:
    return sum(lease.units for lease in _of_epoch(state, id_, kind))


def _reserved(state: Leasing, id_: ProviderId, kind: Kind) -> int:
    quota = state.quotas[id_]
    return {Kind.AI: quota.ai_reserved, Kind.QUANTUM: quota.quantum_reserved}[kind]


def _used(state: Leasing, id_: ProviderId, kind: Kind) -> int:
    quota = state.quotas[id_]
    committed = {Kind.AI: quota.ai_committed, Kind.QUANTUM: quota.quantum_committed}[kind]
    return _reserved(state, id_, kind) + committed
