"""What a verdict means for the provider: praise for good work, a sentence for what was false (RTY-003, PRV-004)."""

from __future__ import annotations

from holdfast.core.event import Event
from holdfast.core.lease.record import Lease, Leasing
from holdfast.core.provider import health, sla
from holdfast.core.provider.acts import HealthMoved
from holdfast.core.provider.record import Provider


def praise(state: Leasing, lease: Lease, now_ms: int) -> tuple[Event, ...]:
    """Good work makes a provider healthier."""
    return health.praised(state, state.providers[lease.provider_id], now_ms)


def sentence(state: Leasing, lease: Lease, reason: str, now_ms: int) -> tuple[Event, ...]:
    """PRV-004: PROOF_INVALID and EQUIVOCATION cost a part of the stake."""
    return sla.sentence(state, state.providers[lease.provider_id], reason, now_ms)


def outvoted(state: Leasing, provider: Provider, reason: str, now_ms: int) -> tuple[Event, ...]:
    """LEA-009: another answer than the others' costs health; a part of the stake only where policy says so."""
    rules = state.policy.provider
    worse = HealthMoved(provider.id, -rules.quorum_minority_decay_ppm, reason, now_ms)
    if not rules.quorum_minority_slashes:
        return (worse,)
    return worse, *sla.sentence(state, provider, reason, now_ms)
