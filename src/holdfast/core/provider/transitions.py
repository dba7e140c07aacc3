"""One transition of a provider (PRV-001), as the event that names its actor and reason."""

from __future__ import annotations

from typing import Final

from holdfast.core.base import fsm
from holdfast.core.base.errors import Refused
from holdfast.core.provider.messages import ProviderStatusChanged
from holdfast.core.provider.model import PROVIDER_TRANSITIONS, SYSTEM_ACTOR, HasProviders, Provider, ProviderTransition


def status_change(
    state: HasProviders,
    provider: Provider,
    transition: ProviderTransition,
    reason: str,
    by: str = SYSTEM_ACTOR,
    until: int = 0,
) -> ProviderStatusChanged:
    """The transition as an event; the caller has checked that the table allows it."""
    after = fsm.next_state(PROVIDER_TRANSITIONS, provider.status, transition)
    assert after is not None, f"{provider.status} does not allow {transition}"
    return ProviderStatusChanged(
        id=provider.id,
        before=provider.status,
        after=after,
        reason=reason,
        actor=by,
        height=state.open_height,
        until=until,
    )


_SHOW: Final = "`holdfast provider show` says how it is; a provider that was retired registers with a new key"


def is_allowed(provider: Provider, transition: ProviderTransition) -> bool:
    return fsm.next_state(PROVIDER_TRANSITIONS, provider.status, transition) is not None


def why_not_transition(provider: Provider, transition: ProviderTransition) -> Refused | None:
    """Why the table does not allow this transition, None where it does."""
    why = fsm.why_not_transition(PROVIDER_TRANSITIONS, provider.status, transition)
    return Refused("PRV-001", f"provider {provider.id.hex()}: {why}", _SHOW) if why else None
