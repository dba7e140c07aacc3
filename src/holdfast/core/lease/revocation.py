"""Leases of a provider that may not work any more (LEA-007): they end, without penalty. The workflow `revoke` uses it
for status changes and for `MaintainProviders` (PRV-002)."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.event import Event
from holdfast.core.lease.messages import close_without_penalty
from holdfast.core.lease.model import HasLeases
from holdfast.core.provider.model import Provider, ProviderStatus

REVOKE_REASONS: Final = {
    ProviderStatus.JAILED: "PROVIDER_JAILED",
    ProviderStatus.SUSPENDED: "PROVIDER_SUSPENDED",
    ProviderStatus.RETIRED: "PROVIDER_RETIRED",
}
"""The statuses in which a provider may not hold leases, each with the reason on the closed lease."""


def revoke_leases(state: HasLeases, provider: Provider, after: ProviderStatus, now_ms: int, limit: int) -> list[Event]:
    """LEA-007: its leases end without penalty, and their jobs can be assigned to others at once.

    A lease with a submission waits for its verdict: the work is done and is paid for.
    """
    reason = REVOKE_REASONS.get(after)
    if reason is None:
        return []
    live = [lease for lease in state.leases.of(provider.id) if lease.submitted is None]
    return [close_without_penalty(lease, reason, now_ms) for lease in live[:limit]]
