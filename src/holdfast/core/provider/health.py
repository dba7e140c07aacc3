"""How well a provider does (RTY-003, PRV-002): what failures and silence take of it, what work and presence give."""

from __future__ import annotations

from typing import Final

from holdfast.core.event import Event
from holdfast.core.policy import Policy
from holdfast.core.provider.acts import HealthMoved, HeartbeatMissed
from holdfast.core.provider.record import HEALTH_WHOLE, Provider, ProviderStatus, Registry

DECAYS: Final = {
    "ACK_TIMEOUT": "ack_timeout_decay_ppm",
    "LEASE_EXPIRED": "lease_expired_decay_ppm",
    "PROVIDER_FAIL": "provider_fail_decay_ppm",
}
"""What each failure takes. One that is not here takes no health, but counts as one in a row: PROOF_INVALID, which is
the matter of `sla`."""
TENDED: Final = frozenset({ProviderStatus.ACTIVE, ProviderStatus.SUSPENDED})
"""Whose heartbeats are waited for."""
PUT_OFF_MS: Final = 1_000


def blamed(state: Registry, provider: Provider, reason: str, now_ms: int) -> tuple[Event, ...]:
    """RTY-003: what a failure does to its provider; it follows the LeaseClosed that counts it.

    Whether health is too low for work is looked at by `Tend`: several failures of one decision count together.
    """
    rules = state.policy.provider
    knob = DECAYS.get(reason)
    by_ppm = -int(getattr(rules, knob)) if knob is not None else 0
    cooling = (rules.failures_in_row_max, rules.cooldown_ms, rules.cooldown_cap_ms)
    return (HealthMoved(provider.id, by_ppm, reason, now_ms, *cooling),)


def praised(state: Registry, provider: Provider, now_ms: int) -> tuple[Event, ...]:
    """Work that was done well heals; who is well and calm already needs no event."""
    if provider.health_ppm == HEALTH_WHOLE and not provider.cooldowns:
        return ()
    by_ppm = min(state.policy.provider.success_recovery_ppm, HEALTH_WHOLE - provider.health_ppm)
    return (HealthMoved(provider.id, by_ppm, "COMPLETED", now_ms, is_calmed=True),)


def heard(state: Registry, provider: Provider, now_ms: int) -> tuple[HealthMoved, ...]:
    """PRV-002: heartbeats bring a provider back to where it gets work, and no further: only work does more.

    They count when they come in time, not when they come often.
    """
    policy = state.policy
    lacks = policy.match.min_health_ppm - provider.health_ppm
    is_early = not provider.missed and now_ms - provider.heartbeat_ms < policy.provider.heartbeat_ms // 2
    if lacks <= 0 or is_early:
        return ()
    by_ppm = min(lacks, policy.provider.heartbeat_recovery_ppm)
    return (HealthMoved(provider.id, by_ppm, "HEARTBEAT", now_ms),)


def missed(state: Registry, provider: Provider, now_ms: int) -> tuple[HeartbeatMissed, ...]:
    """PRV-002: one interval without a heartbeat lowers health by a step; who has no health left is not waited for."""
    due_ms = beat_due_ms(provider, state.policy)
    if due_ms is None or now_ms < due_ms:
        return ()
    by_ppm = -state.policy.provider.missed_heartbeat_decay_ppm
    return (HeartbeatMissed(provider.id, provider.missed + 1, by_ppm, now_ms),)


def beat_due_ms(provider: Provider, policy: Policy) -> int | None:
    """When the next heartbeat counts as missed; None where none is waited for."""
    rules = policy.provider
    is_awaited = provider.status in TENDED and provider.heartbeat_ms and provider.health_ppm
    if not is_awaited or not rules.missed_heartbeat_decay_ppm:
        return None
    return provider.heartbeat_ms + (provider.missed + 1) * rules.heartbeat_ms + rules.heartbeat_grace_ms


def is_too_poor(provider: Provider, policy: Policy) -> bool:
    """Below the threshold no work is given (MAT-002), and an active provider is suspended."""
    return provider.health_ppm < policy.match.min_health_ppm


def when_due(state: Registry, provider: Provider) -> tuple[int | None, int | None]:
    """At which time and at which height this one is to be looked at; None where at none."""
    status, height = provider.status, state.open_height
    is_out = status not in (ProviderStatus.REGISTERED, ProviderStatus.ACTIVE)
    if (is_out and provider.leases) or (status is ProviderStatus.ACTIVE and is_too_poor(provider, state.policy)):
        return 0, None
    waits: list[tuple[int, int]] = []  # a height, and the time from which it counts
    if status is ProviderStatus.JAILED and provider.jailed_until:
        waits.append((provider.jailed_until, 0))
    if provider.unstaking:
        waits.append((provider.unstake_height, provider.unstake_ms))
    times = [beat_due_ms(provider, state.policy), *(at_ms for at, at_ms in waits if at <= height)]
    due_ms = min((each for each in times if each is not None), default=None)
    return due_ms, min((at for at, _ in waits if at > height), default=None)
