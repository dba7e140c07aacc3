"""What an event does to the registry of providers."""

from __future__ import annotations

from holdfast.core.escrow import apply as money
from holdfast.core.provider.acts import HeartbeatTaken, ProviderMoved, ProviderRegistered, ProviderStaked, stake_key
from holdfast.core.provider.record import Provider, Registry, stake_id
from holdfast.core.refusal import Corrupt
from holdfast.core.values import Amount


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
    touch(state, known)


def apply_staked(state: Registry, event: ProviderStaked) -> None:
    provider = state.providers[event.id]
    if provider.stake:
        money.raise_hold(state, stake_id(event.id), event.amount)
    else:
        money.hold_for(state, stake_id(event.id), provider.account, Amount(event.amount))
    provider.stake += event.amount
    state.claims.add(stake_key(event), state.last_event, event)
    touch(state, provider)


def apply_heartbeat(state: Registry, event: HeartbeatTaken) -> None:
    provider = state.providers[event.id]
    provider.heartbeat_ms, provider.slots = event.at_ms, event.slots
    touch(state, provider)


def apply_moved(state: Registry, event: ProviderMoved) -> None:
    provider = state.providers[event.id]
    if provider.status is not event.before:
        raise Corrupt("PRV-001", f"provider {event.id.hex()} is {provider.status}, not {event.before}")
    provider.status = event.after
    touch(state, provider)


def touch(state: Registry, provider: Provider) -> None:
    state.touched["provider"][provider.id] = provider
