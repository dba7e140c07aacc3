"""One step of a provider's life (PRV-001): the arrow that the table has, as the event that says who made it and why."""

from __future__ import annotations

from holdfast.core.machine import step, why_not_step
from holdfast.core.provider.acts import ProviderMoved
from holdfast.core.provider.record import ITSELF, PROVIDER_LIFE, Provider, ProviderAct, Registry
from holdfast.core.refusal import Refused


def moved(
    state: Registry, provider: Provider, act: ProviderAct, reason: str, by: str = ITSELF, until: int = 0
) -> ProviderMoved:
    """The step as an event; asked only where the table has it."""
    after = step(PROVIDER_LIFE, provider.status, act)
    assert after is not None, f"{provider.status} allows no {act}"
    return ProviderMoved(provider.id, provider.status, after, reason, by, state.open_height, until)


def may(provider: Provider, act: ProviderAct) -> bool:
    return step(PROVIDER_LIFE, provider.status, act) is not None


def why_not_moved(provider: Provider, act: ProviderAct) -> Refused | None:
    """The sentence of the table."""
    why = why_not_step(PROVIDER_LIFE, provider.status, act)
    return Refused("PRV-001", f"provider {provider.id.hex()}: {why}") if why else None
