"""Units of work per epoch (QUO-001): reserved by a lease, committed by its completion, released by any other end."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from holdfast.core.base.values import Kind, ProviderId
from holdfast.core.index.touch import Touched
from holdfast.core.policy import QuotaPolicy


class Quota(msgspec.Struct, array_like=True, gc=False):
    """What a provider used of one epoch's units; a row of the table `provider_quota`."""

    provider_id: ProviderId
    epoch: int = 0
    """The latest epoch in which it was granted a lease; earlier ones do not count any more."""
    ai_reserved: int = 0
    ai_committed: int = 0
    quantum_reserved: int = 0
    quantum_committed: int = 0
    compute_reserved: int = 0
    compute_committed: int = 0


_RESERVED: Final = {kind: f"{kind.lower()}_reserved" for kind in Kind}
_COMMITTED: Final = {kind: f"{kind.lower()}_committed" for kind in Kind}


class HasQuotas(Protocol):
    """The parts of the state that this module reads and changes."""

    quotas: dict[ProviderId, Quota]
    touched: Touched


def units_max(kind: Kind, policy: QuotaPolicy) -> int:
    """COMPUTE has as many units as AI, counted apart from them."""
    return policy.quantum_units_per_epoch if kind is Kind.QUANTUM else policy.ai_units_per_epoch


def units_used(quotas: dict[ProviderId, Quota], provider_id: ProviderId, kind: Kind, epoch: int) -> int:
    """What a provider has reserved and committed in this epoch.

    A rollback can bring the chain back into an epoch before the latest one of a provider. Its work then counts for the
    later epoch, so that no provider gets more than one epoch's units.
    """
    known = quotas.get(provider_id)
    if known is None or known.epoch < epoch:
        return 0
    return units_reserved(known, kind) + units_committed(known, kind)


def units_reserved(quota: Quota, kind: Kind) -> int:
    return int(getattr(quota, _RESERVED[kind]))


def units_committed(quota: Quota, kind: Kind) -> int:
    return int(getattr(quota, _COMMITTED[kind]))


def reserve_units(state: HasQuotas, provider_id: ProviderId, kind: Kind, units: int, epoch: int) -> int:
    """Reserve units for a lease; returns the epoch that they count in."""
    known = state.quotas.get(provider_id)
    if known is None or known.epoch < epoch:
        known = state.quotas[provider_id] = Quota(provider_id, epoch)
    _add(known, _RESERVED[kind], units)
    state.touched["provider_quota"][provider_id] = known
    return known.epoch


def settle_units(
    state: HasQuotas, provider_id: ProviderId, kind: Kind, units: int, epoch: int, *, is_completed: bool
) -> None:
    """A lease ended: its units are committed where the work was done, else released."""
    known = state.quotas.get(provider_id)
    if known is None or known.epoch != epoch:
        return
    _add(known, _RESERVED[kind], -units)
    if is_completed:
        _add(known, _COMMITTED[kind], units)
    state.touched["provider_quota"][provider_id] = known


def _add(quota: Quota, column: str, units: int) -> None:
    setattr(quota, column, getattr(quota, column) + units)
