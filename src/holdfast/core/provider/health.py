"""The health of a provider (RTY-003, PRV-002): failures and missed heartbeats lower it, work raises it."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.event import Event
from holdfast.core.policy import Policy
from holdfast.core.provider.messages import HealthChanged, HeartbeatMissed
from holdfast.core.provider.model import HEALTH_MAX_PPM, HasProviders, Provider, ProviderStatus

DECAYS: Final = {
    "ACK_TIMEOUT": "ack_timeout_decay_ppm",
    "LEASE_EXPIRED": "lease_expired_decay_ppm",
    "PROVIDER_FAIL": "provider_fail_decay_ppm",
}
"""The setting of each failure's cost in health. Another failure (PROOF_INVALID, see `sla`) costs no health, but counts
as a failure in a row."""
HEARTBEAT_EXPECTED: Final = frozenset({ProviderStatus.ACTIVE, ProviderStatus.SUSPENDED})
"""The statuses in which heartbeats are expected."""
RECHECK_MS: Final = 1_000


def on_failure(state: HasProviders, provider: Provider, reason: str, now_ms: int) -> HealthChanged:
    """RTY-003: what a failure does to its provider; it follows the LeaseClosed that counts it.

    `MaintainProviders` suspends it where its health is too low: several failures of one decision count together.
    """
    rules = state.policy.provider
    setting = DECAYS.get(reason)
    by_ppm = -int(getattr(rules, setting)) if setting is not None else 0
    return HealthChanged(
        id=provider.id,
        by_ppm=by_ppm,
        reason=reason,
        at_ms=now_ms,
        failures_max=rules.failures_in_row_max,
        cooldown_ms=rules.cooldown_ms,
        cap_ms=rules.cooldown_cap_ms,
    )


def on_success(state: HasProviders, provider: Provider, now_ms: int) -> tuple[Event, ...]:
    """A completed job raises health; a provider in full health without cooldowns needs no event."""
    if provider.health_ppm == HEALTH_MAX_PPM and not provider.cooldowns:
        return ()
    by_ppm = min(state.policy.provider.success_recovery_ppm, HEALTH_MAX_PPM - provider.health_ppm)
    return (HealthChanged(provider.id, by_ppm, "COMPLETED", now_ms, resets_cooldowns=True),)


def on_heartbeat(state: HasProviders, provider: Provider, now_ms: int) -> tuple[HealthChanged, ...]:
    """PRV-002: heartbeats raise health up to the minimum for work, and no further: only work does more.

    A heartbeat counts when it is on time, not when it is early.
    """
    policy = state.policy
    missing_ppm = policy.match.min_health_ppm - provider.health_ppm
    is_early = not provider.missed_heartbeats and now_ms - provider.heartbeat_ms < policy.provider.heartbeat_ms // 2
    if missing_ppm <= 0 or is_early:
        return ()
    by_ppm = min(missing_ppm, policy.provider.heartbeat_recovery_ppm)
    return (HealthChanged(provider.id, by_ppm, "HEARTBEAT", now_ms),)


def missed_heartbeats(state: HasProviders, provider: Provider, now_ms: int) -> tuple[HeartbeatMissed, ...]:
    """PRV-002: an interval without a heartbeat lowers health by a step; at health 0 no heartbeat is expected."""
    due_ms = heartbeat_due_ms(provider, state.policy)
    if due_ms is None or now_ms < due_ms:
        return ()
    by_ppm = -state.policy.provider.missed_heartbeat_decay_ppm
    return (HeartbeatMissed(provider.id, provider.missed_heartbeats + 1, by_ppm, now_ms),)


def heartbeat_due_ms(provider: Provider, policy: Policy) -> int | None:
    """When the next heartbeat counts as missed; None where none is expected."""
    rules = policy.provider
    is_expected = provider.status in HEARTBEAT_EXPECTED and provider.heartbeat_ms and provider.health_ppm
    if not is_expected or not rules.missed_heartbeat_decay_ppm:
        return None
    return provider.heartbeat_ms + (provider.missed_heartbeats + 1) * rules.heartbeat_ms + rules.heartbeat_grace_ms


def is_unhealthy(provider: Provider, policy: Policy) -> bool:
    """Below the threshold a provider gets no work (MAT-002), and an active one is suspended."""
    return provider.health_ppm < policy.match.min_health_ppm


def when_due(state: HasProviders, provider: Provider) -> tuple[int | None, int | None]:
    """The time and the height at which `MaintainProviders` must check this provider; None where at none."""
    status, height = provider.status, state.open_height
    is_out = status not in (ProviderStatus.REGISTERED, ProviderStatus.ACTIVE)
    if (is_out and provider.leases) or (status is ProviderStatus.ACTIVE and is_unhealthy(provider, state.policy)):
        return 0, None
    waits: list[tuple[int, int]] = []  # (height, time): both must be reached
    if status is ProviderStatus.JAILED and provider.jailed_until:
        waits.append((provider.jailed_until, 0))
    if provider.unstaking:
        waits.append((provider.unstake_height, provider.unstake_ms))
    times = [heartbeat_due_ms(provider, state.policy), *(at_ms for at, at_ms in waits if at <= height)]
    due_ms = min((at_ms for at_ms in times if at_ms is not None), default=None)
    return due_ms, min((at for at, _ in waits if at > height), default=None)
