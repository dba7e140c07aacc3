"""What an event does to providers and to the money they have at stake."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.records import record_from
from holdfast.core.base.values import Amount, EventNo, ProviderId
from holdfast.core.escrow import apply as escrow_apply
from holdfast.core.provider.health import when_due
from holdfast.core.provider.messages import (
    HealthChanged,
    HeartbeatMissed,
    HeartbeatReceived,
    ListingChanged,
    OutageCredited,
    ProviderDrained,
    ProviderRegistered,
    ProviderSlashed,
    ProviderStaked,
    ProviderStatusChanged,
    SignerRotated,
    StakeReleased,
    UnstakeRequested,
    stake_key,
    time_independent_unstake,
    unstake_key,
)
from holdfast.core.provider.model import (
    DECLARED,
    HEALTH_MAX_PPM,
    SLASHED,
    HasProviders,
    Provider,
    ProviderStatus,
    slash_reservation_id,
    stake_reservation_id,
)
from holdfast.core.provider.operator_actions import exclusive_subjects, why_denied_by_list
from holdfast.core.provider.provider_timers import ProviderTimers


def touch(state: HasProviders, provider: Provider) -> None:
    """Every change of a provider is reported here, so that the indexes beside the records follow.

    Most changes are leases that begin and end. They do not change when an active provider is due.
    """
    state.touched["provider"][provider.id] = provider
    state.changed_providers.add(provider.id)
    if provider.status is not ProviderStatus.ACTIVE:
        schedule(state, provider)


def record_change(state: HasProviders, provider: Provider) -> None:
    """A change of the provider itself, not only of its load: its due time may change."""
    touch(state, provider)
    schedule(state, provider)


def schedule(state: HasProviders, provider: Provider) -> None:
    state.provider_timers.schedule(provider.id, *when_due(state, provider))
    is_unstaked = not provider.at_stake and provider.status is not ProviderStatus.RETIRED
    state.provider_timers.set_unstaked(provider.id, is_unstaked=is_unstaked)


def rebuild_provider_timers(state: HasProviders) -> ProviderTimers:
    """The index of due providers, rebuilt from the records."""
    state.provider_timers = ProviderTimers(
        rotated_keys={
            provider.current_key: provider.id for provider in state.providers.values() if provider.current_key
        }
    )
    for provider in state.providers.values():
        schedule(state, provider)
    return state.provider_timers


# ------------------------------------------------------------------------------------------------ registration, status


def apply_registered(state: HasProviders, event: ProviderRegistered) -> None:
    known = state.providers.get(event.id)
    if known is None:
        known = state.providers[event.id] = record_from(Provider, event, event=state.last_event)
    for name in DECLARED:
        setattr(known, name, getattr(event, name))
    known.denied_by_list = why_denied_by_list(known, state.listings, exclusive_subjects(state.listings))
    record_change(state, known)


def apply_rotated(state: HasProviders, event: SignerRotated) -> None:
    provider, keyring = state.providers[event.id], state.provider_timers.rotated_keys
    if provider.signing_key != event.before:
        raise Corrupt("PRV-003", f"provider {event.id.hex()} does not sign with {event.before.hex()}")
    keyring.pop(event.before, None)
    provider.current_key = b"" if event.after == provider.public else event.after
    if provider.current_key:
        keyring[event.after] = provider.id
    record_change(state, provider)


def apply_status_changed(state: HasProviders, event: ProviderStatusChanged) -> None:
    provider = state.providers[event.id]
    if provider.status is not event.before:
        raise Corrupt("PRV-001", f"provider {event.id.hex()} is {provider.status}, not {event.before}")
    provider.status, is_well = event.after, event.after is ProviderStatus.ACTIVE
    provider.reason, provider.status_changed_by = ("", "") if is_well else (event.reason, event.actor)
    provider.jailed_until = event.until if event.after is ProviderStatus.JAILED else 0
    record_change(state, provider)


def apply_drained(state: HasProviders, event: ProviderDrained) -> None:
    provider = state.providers[event.id]
    provider.is_draining = int(event.after)
    record_change(state, provider)


def apply_listing_changed(state: HasProviders, event: ListingChanged) -> None:
    """A list can concern every provider; it changes seldom, so all providers are checked."""
    if event.after:
        state.listings[event.subject] = event.after
    else:
        state.listings.pop(event.subject, None)
    only = exclusive_subjects(state.listings)
    for provider in state.providers.values():
        if (reason := why_denied_by_list(provider, state.listings, only)) != provider.denied_by_list:
            provider.denied_by_list = reason
            record_change(state, provider)


# ------------------------------------------------------------------------------------------------ health


def apply_heartbeat(state: HasProviders, event: HeartbeatReceived) -> None:
    provider = state.providers[event.id]
    provider.heartbeat_ms, provider.slots, provider.load = event.at_ms, event.slots, event.load
    provider.missed_heartbeats = 0
    provider.versions = event.versions or provider.versions
    record_change(state, provider)


def apply_heartbeat_missed(state: HasProviders, event: HeartbeatMissed) -> None:
    provider = state.providers[event.id]
    provider.missed_heartbeats = event.missed
    _add_health(provider, event.by_ppm)
    record_change(state, provider)


def apply_health_changed(state: HasProviders, event: HealthChanged) -> None:
    provider = state.providers[event.id]
    _add_health(provider, event.by_ppm)
    row, most = provider.failures_in_row, event.failures_max
    if most and row and row % most == 0 and event.at_ms >= provider.cooling_until_ms:
        wait_ms = min(event.cap_ms, event.cooldown_ms << min(provider.cooldowns, 62))
        provider.cooling_until_ms = event.at_ms + wait_ms
        provider.cooldowns += 1
    if event.resets_cooldowns:
        provider.cooldowns = 0
    record_change(state, provider)


def _add_health(provider: Provider, by_ppm: int) -> None:
    provider.health_ppm = min(HEALTH_MAX_PPM, max(0, provider.health_ppm + by_ppm))


def apply_outage_credited(state: HasProviders, event: OutageCredited) -> None:
    """LEA-008: heartbeats that were fresh when the outage began are moved by its length; others are not."""
    state.outage_credited_term[0] = event.term
    went_down_ms = event.at_ms - event.outage_ms
    for provider in state.providers.values():
        if went_down_ms - event.stale_ms < provider.heartbeat_ms <= went_down_ms:
            provider.heartbeat_ms += event.outage_ms
            record_change(state, provider)


# ------------------------------------------------------------------------------------------------ stake


def apply_staked(state: HasProviders, event: ProviderStaked) -> None:
    provider, reservation = state.providers[event.id], stake_reservation_id(event.id)
    if reservation in state.ledger.reservations:
        escrow_apply.raise_reservation(state, reservation, event.amount)
    else:
        escrow_apply.reserve_for(state, [(reservation, provider.account, Amount(event.amount))])
    provider.stake += event.amount
    state.claims.add(stake_key(event), state.last_event, event)
    record_change(state, provider)


def apply_unstake_requested(state: HasProviders, event: UnstakeRequested) -> None:
    """No money moves yet: the amount only stops counting as stake."""
    provider = state.providers[event.id]
    provider.stake -= event.amount
    provider.unstaking += event.amount
    provider.unstake_height, provider.unstake_ms = event.unstake_height, event.unstake_ms
    state.claims.add(unstake_key(event), state.last_event, time_independent_unstake(event))
    record_change(state, provider)


def apply_stake_released(state: HasProviders, event: StakeReleased) -> None:
    provider = state.providers[event.id]
    provider.unstaking -= event.amount
    provider.unstake_height = provider.unstake_ms = 0
    escrow_apply.lower_reservation(state, stake_reservation_id(event.id), event.amount)
    record_change(state, provider)


def apply_slashed(state: HasProviders, event: ProviderSlashed) -> None:
    """PRV-004, ESC-002: the penalty is pending until its block is final; it takes locked stake last."""
    provider, penalty = state.providers[event.id], event.penalty
    from_stake = min(provider.stake, penalty)
    provider.stake -= from_stake
    provider.unstaking -= penalty - from_stake
    provider.slashed += penalty
    provider.offended_ms = event.at_ms
    if provider.status is ProviderStatus.JAILED:
        provider.jailed_until = event.jailed_until
    if not provider.unstaking:
        provider.unstake_height = provider.unstake_ms = 0
    if penalty:
        part = slash_reservation_id(event.id, state.last_event)
        escrow_apply.split_reservation(state, stake_reservation_id(event.id), part, penalty)
    record_change(state, provider)


def include_slash(state: HasProviders, id_: ProviderId, slash: EventNo, number: EventNo) -> None:
    """ESC-002: the open block charges the penalty. A slash without a penalty has no reservation."""
    part = slash_reservation_id(id_, slash)
    if (reservation := state.ledger.reservations.get(part)) is not None:
        escrow_apply.settle_all(state, state.open_height, [(number, part, SLASHED, reservation.amount)])


def record_completions(state: HasProviders, counts: Mapping[ProviderId, int]) -> None:
    """Jobs of these providers were completed: their failures in a row are reset."""
    for id_, count in counts.items():
        provider = state.providers[id_]
        provider.completed += count
        provider.failures_in_row = 0
        touch(state, provider)
