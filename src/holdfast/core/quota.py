"""Units of work per epoch (QUO-001): reserved at the lease, committed at completion, released when it was cancelled."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from holdfast.core.policy import QuotaPolicy
from holdfast.core.touch import Touched
from holdfast.core.values import Kind, ProviderId


class Quota(msgspec.Struct, array_like=True, gc=False):
    """What a provider used of one epoch's units; a row of the table `provider_quota`."""

    provider_id: ProviderId
    epoch: int = 0
    """The latest in which it was given a lease; what is left of earlier ones interests nobody."""
    ai_reserved: int = 0
    ai_committed: int = 0
    quantum_reserved: int = 0
    quantum_committed: int = 0


_RESERVED: Final = {Kind.AI: "ai_reserved", Kind.QUANTUM: "quantum_reserved"}
_COMMITTED: Final = {Kind.AI: "ai_committed", Kind.QUANTUM: "quantum_committed"}


class Counting(Protocol):
    """What is needed of the state."""

    quotas: dict[ProviderId, Quota]
    touched: Touched


def units_max(kind: Kind, policy: QuotaPolicy) -> int:
    return {Kind.AI: policy.ai_units_per_epoch, Kind.QUANTUM: policy.quantum_units_per_epoch}[kind]


def units_used(quotas: dict[ProviderId, Quota], provider_id: ProviderId, kind: Kind, epoch: int) -> int:
    """What a provider has reserved and committed in this epoch.

    A rollback can take the chain back into an earlier epoch than a provider has worked in. What it does then counts
    for the later one: nobody gets more by that than one epoch's units.
    """
    known = quotas.get(provider_id)
    if known is None or known.epoch < epoch:
        return 0
    return int(getattr(known, _RESERVED[kind]) + getattr(known, _COMMITTED[kind]))


def reserve(state: Counting, provider_id: ProviderId, kind: Kind, units: int, epoch: int) -> int:
    """Set units aside for a lease; returns the epoch that they belong to."""
    known = state.quotas.get(provider_id)
    if known is None or known.epoch < epoch:
        known = state.quotas[provider_id] = Quota(provider_id, epoch)
    _add(known, _RESERVED[kind], units)
    state.touched["provider_quota"][provider_id] = known
    return known.epoch


def release(state: Counting, provider_id: ProviderId, kind: Kind, units: int, epoch: int, *, is_done: bool) -> None:
    """A lease ended: what it had reserved is committed where the work was done, else free again."""
    known = state.quotas.get(provider_id)
    if known is None or known.epoch != epoch:
        return
    _add(known, _RESERVED[kind], -units)
    if is_done:
        _add(known, _COMMITTED[kind], units)
    state.touched["provider_quota"][provider_id] = known


def _add(quota: Quota, column: str, units: int) -> None:
    setattr(quota, column, getattr(quota, column) + units)
