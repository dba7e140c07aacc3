"""What a verdict means for the provider: health for a good proof, a penalty for a false one (RTY-003, PRV-004)."""

from __future__ import annotations

from holdfast.core.base.event import Event
from holdfast.core.lease.model import HasLeases, Lease
from holdfast.core.provider import health, sla
from holdfast.core.provider.messages import HealthChanged
from holdfast.core.provider.model import Provider


def reward(state: HasLeases, lease: Lease, now_ms: int) -> tuple[Event, ...]:
    """An accepted proof raises the provider's health."""
    return health.on_success(state, state.providers[lease.provider_id], now_ms)


def penalize(state: HasLeases, lease: Lease, reason: str, now_ms: int) -> tuple[Event, ...]:
    """PRV-004: PROOF_INVALID and EQUIVOCATION cost a part of the stake."""
    return sla.on_offence(state, state.providers[lease.provider_id], reason, now_ms)


def penalize_minority(state: HasLeases, provider: Provider, reason: str, now_ms: int) -> tuple[Event, ...]:
    """LEA-009: a minority vote costs health; a part of the stake only where policy is set so."""
    rules = state.policy.provider
    worse = HealthChanged(provider.id, -rules.quorum_minority_decay_ppm, reason, now_ms)
    if not rules.quorum_minority_slashes:
        return (worse,)
    return worse, *sla.on_offence(state, provider, reason, now_ms)
