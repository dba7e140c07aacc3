"""Priority: one integer per job that does not change with time, so that waiting jobs are never scored again."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from holdfast.core.base.values import Tier
from holdfast.core.policy import PriorityPolicy
from holdfast.core.policy.limits import PRIORITY_ONE


def sort_priority(max_fee: int, size_bytes: int, tier: Tier, enqueue_ts_ms: int, policy: PriorityPolicy) -> int:
    """PRI-001, PRI-002: a higher key goes first; exact, at any size of its arguments.

    The score grows with age at the same rate for every job. So the age is measured from one common origin instead of
    from now, and the key does not depend on the time.
    """
    fee = min(max_fee, policy.fee_ref) * PRIORITY_ONE // policy.fee_ref
    size = policy.size_ref * PRIORITY_ONE // (policy.size_ref + size_bytes)
    born = enqueue_ts_ms * PRIORITY_ONE // policy.age_ref_ms
    return policy.w_fee * fee + policy.w_size * size + policy.w_tier * _tier(tier, policy) - policy.w_age * born


def _tier(tier: Tier, policy: PriorityPolicy) -> int:
    per_mille: int = _PER_MILLE[tier](policy)
    return per_mille * PRIORITY_ONE // 1_000


_PER_MILLE: Final = {
    Tier.FREE: attrgetter("tier_free_per_mille"),
    Tier.PRO: attrgetter("tier_pro_per_mille"),
    Tier.PREMIUM: attrgetter("tier_premium_per_mille"),
}
