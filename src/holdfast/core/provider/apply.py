"""What an event does to the registry of providers, and to the money they have at stake."""

from __future__ import annotations

from holdfast.core.escrow import apply as money
from holdfast.core.escrow.books import HoldAct
from holdfast.core.provider.acts import (
    HealthMoved,
    HeartbeatMissed,
    HeartbeatsForgiven,
    HeartbeatTaken,
    ListingChanged,
    ProviderDrained,
    ProviderMoved,
    ProviderRegistered,
    ProviderSlashed,
    ProviderStaked,
    SignerRotated,
    StakeReleased,
    UnstakeAsked,
    stake_key,
    unstake_key,
    unstake_wish,
)
from holdfast.core.provider.health import when_due
from holdfast.core.provider.moves import exclusive, why_barred
from holdfast.core.provider.record import (
    HEALTH_WHOLE,
    SLASHED,
    Provider,
    ProviderStatus,
    Registry,
    slash_id,
    stake_id,
)
from holdfast.core.provider.ward import Ward
from holdfast.core.refusal import Corrupt
from holdfast.core.values import Amount, EventNo, HoldId, ProviderId


def touch(state: Registry, provider: Provider) -> None:
    """Every change of a provider passes here: whoever keeps something beside the records is told.

    Work that comes and goes moves nothing that an active provider is waited for, and is most of what happens.
    """
    state.touched["provider"][provider.id] = provider
    state.stale.add(provider.id)
    if provider.status is not ProviderStatus.ACTIVE:
        note(state, provider)


def changed(state: Registry, provider: Provider) -> None:
    """A change of the provider itself, not only of its load: it may be due at another time now."""
    touch(state, provider)
    note(state, provider)


def note(state: Registry, provider: Provider) -> None:
    state.ward.note(provider.id, *when_due(state, provider))
    is_stranger = not provider.at_stake and provider.status is not ProviderStatus.RETIRED
    state.ward.meet(provider.id, is_stranger=is_stranger)


def looked_after(state: Registry) -> Ward:
    """The index of who is due when, made anew from the records."""
    state.ward = Ward(keyring={each.current_key: each.id for each in state.providers.values() if each.current_key})
    for provider in state.providers.values():
        note(state, provider)
    return state.ward


# ------------------------------------------------------------------------------------------------ who they are


def apply_registered(state: Registry, event: ProviderRegistered) -> None:
    known = state.providers.get(event.id)
    if known is None:
        told = (event.name, event.account, event.capabilities, event.region, event.price, event.slots)
        known = Provider(event.id, state.last_event, event.public, *told, event.attested_until_ms, event.registered_ms)
        state.providers[event.id] = known
    else:
        known.name, known.account, known.capabilities = event.name, event.account, event.capabilities
        known.region, known.price, known.slots = event.region, event.price, event.slots
        known.attested_until_ms = event.attested_until_ms
    known.attestor, known.versions = event.attestor, event.versions
    known.barred = why_barred(known, state.listings, exclusive(state.listings))
    changed(state, known)


def apply_rotated(state: Registry, event: SignerRotated) -> None:
    provider, keyring = state.providers[event.id], state.ward.keyring
    if provider.signing_key != event.before:
        raise Corrupt("PRV-003", f"provider {event.id.hex()} does not sign with {event.before.hex()}")
    keyring.pop(event.before, None)
    provider.current_key = b"" if event.after == provider.public else event.after
    if provider.current_key:
        keyring[event.after] = provider.id
    changed(state, provider)


def apply_moved(state: Registry, event: ProviderMoved) -> None:
    provider = state.providers[event.id]
    if provider.status is not event.before:
        raise Corrupt("PRV-001", f"provider {event.id.hex()} is {provider.status}, not {event.before}")
    provider.status, is_well = event.after, event.after is ProviderStatus.ACTIVE
    provider.reason, provider.moved_by = ("", "") if is_well else (event.reason, event.actor)
    provider.jailed_until = event.until if event.after is ProviderStatus.JAILED else 0
    changed(state, provider)


def apply_drained(state: Registry, event: ProviderDrained) -> None:
    provider = state.providers[event.id]
    provider.is_draining = int(event.after)
    changed(state, provider)


def apply_listed(state: Registry, event: ListingChanged) -> None:
    """A list can concern every provider; it changes seldom, so all are looked at."""
    if event.after:
        state.listings[event.subject] = event.after
    else:
        state.listings.pop(event.subject, None)
    only = exclusive(state.listings)
    for provider in state.providers.values():
        if (barred := why_barred(provider, state.listings, only)) != provider.barred:
            provider.barred = barred
            changed(state, provider)


# ------------------------------------------------------------------------------------------------ how they are


def apply_heartbeat(state: Registry, event: HeartbeatTaken) -> None:
    provider = state.providers[event.id]
    provider.heartbeat_ms, provider.slots, provider.load = event.at_ms, event.slots, event.load
    provider.missed = 0
    provider.versions = event.versions or provider.versions
    changed(state, provider)


def apply_missed(state: Registry, event: HeartbeatMissed) -> None:
    provider = state.providers[event.id]
    provider.missed = event.missed
    _heal(provider, event.by_ppm)
    changed(state, provider)


def apply_health(state: Registry, event: HealthMoved) -> None:
    provider = state.providers[event.id]
    _heal(provider, event.by_ppm)
    row, most = provider.failures_in_row, event.failures_max
    if most and row and row % most == 0 and event.at_ms >= provider.cooling_until_ms:
        wait_ms = min(event.cap_ms, event.cooldown_ms << min(provider.cooldowns, 62))
        provider.cooling_until_ms = event.at_ms + wait_ms
        provider.cooldowns += 1
    if event.is_calmed:
        provider.cooldowns = 0
    changed(state, provider)


def _heal(provider: Provider, by_ppm: int) -> None:
    provider.health_ppm = min(HEALTH_WHOLE, max(0, provider.health_ppm + by_ppm))


def apply_forgiven(state: Registry, event: HeartbeatsForgiven) -> None:
    """LEA-008: heartbeats from before the outage are later by it; not those that were stale, nor those after it."""
    state.forgiven[0] = event.epoch
    went_down_ms = event.at_ms - event.outage_ms
    for provider in state.providers.values():
        if went_down_ms - event.stale_ms < provider.heartbeat_ms <= went_down_ms:
            provider.heartbeat_ms += event.outage_ms
            changed(state, provider)


# ------------------------------------------------------------------------------------------------ what they can lose


def apply_staked(state: Registry, event: ProviderStaked) -> None:
    provider, hold = state.providers[event.id], stake_id(event.id)
    if hold in state.ledger.holds:
        money.raise_hold(state, hold, event.amount)
    else:
        money.hold_for(state, hold, provider.account, Amount(event.amount))
    provider.stake += event.amount
    state.claims.add(stake_key(event), state.last_event, event)
    changed(state, provider)


def apply_unstaked(state: Registry, event: UnstakeAsked) -> None:
    """No money moves yet: it only counts no more."""
    provider = state.providers[event.id]
    provider.stake -= event.amount
    provider.unstaking += event.amount
    provider.unstake_height, provider.unstake_ms = event.unstake_height, event.unstake_ms
    state.claims.add(unstake_key(event), state.last_event, unstake_wish(event))
    changed(state, provider)


def apply_released(state: Registry, event: StakeReleased) -> None:
    provider = state.providers[event.id]
    provider.unstaking -= event.amount
    provider.unstake_height = provider.unstake_ms = 0
    money.lower_hold(state, stake_id(event.id), event.amount)
    changed(state, provider)


def apply_slashed(state: Registry, event: ProviderSlashed) -> None:
    """PRV-004, ESC-002: what is lost sits pending until its block is final; what was locked goes last."""
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
        part = slash_id(event.id, state.last_event)
        money.split_hold(state, stake_id(event.id), part, penalty)
        _take(state, part)
    changed(state, provider)


def slash_again(state: Registry, id_: ProviderId, number: EventNo) -> None:
    """CHN-004: the same money, in the block that is open now. A slash that took nothing has nothing to take."""
    part = slash_id(id_, number)
    if part in state.ledger.holds:
        _take(state, part)


def _take(state: Registry, part: HoldId) -> None:
    amount = state.ledger.holds[part].amount
    money.settle_for(state, part, HoldAct.CHARGE, state.open_height, SLASHED, amount)
