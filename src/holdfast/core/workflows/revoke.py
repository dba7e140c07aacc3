"""A provider that may not work any more loses its leases (LEA-007): status changes, and upkeep (PRV-002)."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.handlers import Commands
from holdfast.core.base.values import Amount
from holdfast.core.lease.decide import REVOKE_REASONS, revoke_leases
from holdfast.core.lease.model import HasLeases
from holdfast.core.policy import BLOCKS_MAX
from holdfast.core.provider.decide import is_valid_reason, provider_of
from holdfast.core.provider.health import RECHECK_MS, is_unhealthy, missed_heartbeats, when_due
from holdfast.core.provider.messages import (
    ChangeStatus,
    HealthChanged,
    MaintainProviders,
    OutageCredited,
    StakeReleased,
    status_change,
)
from holdfast.core.provider.model import Provider, ProviderStatus, ProviderTransition, why_not_transition
from holdfast.core.provider.operator_actions import BAD_REASON

OPERATOR_TRANSITIONS: Final = frozenset(
    {
        ProviderTransition.JAIL,
        ProviderTransition.UNJAIL,
        ProviderTransition.SUSPEND,
        ProviderTransition.RECOVER,
        ProviderTransition.RETIRE,
    }
)


def change_status(state: HasLeases, command: ChangeStatus, now_ms: int) -> Decided | Refused:
    """PRV-001: a transition that was requested; the leases that it ends are in the same decision."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if command.transition not in OPERATOR_TRANSITIONS:
        return Refused("PRV-001", f"{command.transition} cannot be requested", name="InvalidParams")
    if not is_valid_reason(command.reason):
        return BAD_REASON
    if not 0 <= command.blocks <= BLOCKS_MAX:
        return Refused("PRV-001", f"blocks: 0 … {BLOCKS_MAX}", name="InvalidParams")
    if refusal := why_not_transition(provider, command.transition):
        return refusal
    is_timed = command.transition is ProviderTransition.JAIL and command.blocks
    until = state.open_height + command.blocks if is_timed else 0
    changed = status_change(state, provider, command.transition, command.reason, command.by, until)
    revoked = revoke_leases(state, provider, changed.after, now_ms, provider.leases)
    return Decided((changed, *_recovery_health(state, provider, command.transition, now_ms), *revoked))


def _recovery_health(state: HasLeases, provider: Provider, transition: ProviderTransition, now_ms: int) -> list[Event]:
    """A provider that an operator recovers gets the minimum health, or it would be suspended again at once."""
    missing_ppm = state.policy.match.min_health_ppm - provider.health_ppm
    if transition is not ProviderTransition.RECOVER or missing_ppm <= 0:
        return []
    return [HealthChanged(provider.id, missing_ppm, "RECOVERED", now_ms)]


def maintain_providers(state: HasLeases, command: MaintainProviders, now_ms: int) -> Decided | Refused:
    """PRV-002, LEA-007: the providers that are due, each once, in a bounded number of events."""
    if credit := _outage_credit(state):
        return Decided(credit)
    events: list[Event] = []
    for id_ in list(state.provider_timers.due_until(now_ms, state.open_height)):
        if len(events) >= command.limit:
            break
        provider = state.providers[id_]
        due = _maintain_provider(state, provider, now_ms, command.limit)
        if not due:
            _reschedule(state, provider, now_ms)
        events += due
    return Decided(tuple(events), repeat_of=None if events else state.last_event)


def is_maintenance_due(state: HasLeases, now_ms: int) -> bool:
    """Whether `MaintainProviders` would find something: a cheap check for a worker that runs often."""
    return bool(_outage_credit(state)) or state.provider_timers.is_due(now_ms, state.open_height)


def _outage_credit(state: HasLeases) -> tuple[OutageCredited, ...]:
    """LEA-008: once per term that began after an outage, before heartbeats of that time count as missed."""
    owner = state.owner
    if owner is None or not owner.outage_ms or not state.providers or state.outage_credited_term.get(0) == owner.term:
        return ()
    stale_ms = state.policy.provider.heartbeat_stale_ms
    return (OutageCredited(owner.term, owner.outage_ms, owner.at_ms, stale_ms),)


def _maintain_provider(state: HasLeases, provider: Provider, now_ms: int, limit: int) -> list[Event]:
    """One provider: what is due now, the most severe first."""
    policy, status = state.policy, provider.status
    if status in REVOKE_REASONS and (revoked := revoke_leases(state, provider, status, now_ms, limit)):
        return revoked
    missed = missed_heartbeats(state, provider, now_ms)
    health_ppm = max(0, provider.health_ppm + sum(event.by_ppm for event in missed))
    events: list[Event] = [*missed, *_stake_release(state, provider, now_ms)]
    if status is ProviderStatus.ACTIVE and (is_unhealthy(provider, policy) or health_ppm < policy.match.min_health_ppm):
        changed = status_change(state, provider, ProviderTransition.SUSPEND, f"health {health_ppm} ppm")
        return [*events, changed, *revoke_leases(state, provider, changed.after, now_ms, provider.leases)]
    if status is ProviderStatus.JAILED and 0 < provider.jailed_until <= state.open_height:
        events.append(status_change(state, provider, ProviderTransition.UNJAIL, f"until block {provider.jailed_until}"))
    return events


def _stake_release(state: HasLeases, provider: Provider, now_ms: int) -> list[Event]:
    """Unstaking money after its lock, in blocks and in time."""
    is_locked = state.open_height < provider.unstake_height or now_ms < provider.unstake_ms
    if is_locked or not provider.unstaking:
        return []
    return [StakeReleased(provider.id, Amount(provider.unstaking))]


def _reschedule(state: HasLeases, provider: Provider, now_ms: int) -> None:
    """Nothing is to be done yet: a verdict is pending, or the index was a little early."""
    due_ms, height = when_due(state, provider)
    if due_ms is not None and due_ms <= now_ms:
        due_ms = now_ms + RECHECK_MS
    state.provider_timers.schedule(provider.id, due_ms, height)


COMMANDS: Final[Commands] = {ChangeStatus: change_status, MaintainProviders: maintain_providers}
