"""What must hold of providers after every event: their stake is reserved, and the indexes agree (PRV-001, PRV-004)."""

from __future__ import annotations

from holdfast.core.provider.model import HEALTH_MAX_PPM, HasProviders, Provider, ProviderStatus, stake_reservation_id


def broken_invariants(state: HasProviders) -> list[str]:
    """The invariants of providers that do not hold."""
    providers, timers = state.providers, state.provider_timers
    checks = {
        "a provider is stored under its own id": all(id_ == provider.id for id_, provider in providers.items()),
        "a provider's stake is reserved": all(_is_reserved(state, provider) for provider in providers.values()),
        "health is within its bounds": all(
            0 <= provider.health_ppm <= HEALTH_MAX_PPM for provider in providers.values()
        ),
        "only jailed providers have a jail term": all(
            not provider.jailed_until or provider.status is ProviderStatus.JAILED for provider in providers.values()
        ),
        "providers without a stake are counted": timers.unstaked
        == {id_ for id_, one in providers.items() if not one.at_stake and one.status is not ProviderStatus.RETIRED},
        "rotated keys belong to their providers": timers.rotated_keys
        == {provider.current_key: id_ for id_, provider in providers.items() if provider.current_key},
    }
    return [invariant for invariant, holds in checks.items() if not holds]


def _is_reserved(state: HasProviders, provider: Provider) -> bool:
    reservation = state.ledger.reservations.get(stake_reservation_id(provider.id))
    return (reservation.amount if reservation is not None else 0) == provider.at_stake
