"""Priority: one integer per job that does not change with time, so that waiting jobs are never scored again."""

from __future__ import annotations

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
    subscription: int = getattr(policy, _PER_MILLE[tier]) * PRIORITY_ONE // 1_000
    return policy.w_fee * fee + policy.w_size * size + policy.w_tier * subscription - policy.w_age * born


_PER_MILLE: Final = {tier: f"tier_{tier.lower()}_per_mille" for tier in Tier}
"""The setting of each tier."""
