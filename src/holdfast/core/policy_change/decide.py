"""Whether a policy may be adopted, and which leases it ends (LEA-007)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.values import Kind, ProviderId
from holdfast.core.lease.messages import close_without_penalty
from holdfast.core.lease.model import HasLeases, Lease
from holdfast.core.policy import Policy, QuotaPolicy
from holdfast.core.policy_change.messages import AdoptPolicy, PolicyAdopted
from holdfast.core.policy_change.model import PolicyState, adoption_event
from holdfast.core.queue.quota import units_max, units_used

QUOTA_LOWERED: Final = "QUOTA_LOWERED"


def adopt(state: PolicyState, command: AdoptPolicy, now_ms: int) -> Decided | Refused:
    """LEA-007: where it lowers a quota, leases above it are cancelled at once, the newest first, without penalty."""
    policy, before = command.policy, adoption_event(state.policy_bytes)
    if state.policy_bytes and state.policy == policy:
        return Decided((), repeat_of=before or state.last_event)
    if (state.policy_bytes or not state.chain.is_at_genesis) and (refusal := why_not_network(state.policy, policy)):
        return refusal
    closed = [
        close_without_penalty(lease, QUOTA_LOWERED, now_ms)
        for provider_id in state.leases.by_provider
        for lease in leases_over_quota(state, provider_id, policy.quota)
    ]
    return Decided((PolicyAdopted(msgspec.msgpack.encode(policy), before, now_ms, command.by), *closed))


def why_not_network(adopted: Policy, policy: Policy) -> Refused | None:
    """ESC-003, CHN-006: genesis names the chain and the kind of its network; no policy changes them."""
    for rule, name in (("CHN-006", "chain_id"), ("ESC-003", "network")):
        if (ours := getattr(adopted, name)) != (theirs := getattr(policy, name)):
            message = f"{name}: this chain was made with {ours}, not {theirs}"
            return Refused(rule, message, f"restore {name}, or start with an empty folder", "BadConfig")
    return None


def leases_over_quota(state: HasLeases, provider_id: ProviderId, policy: QuotaPolicy) -> list[Lease]:
    """The leases above the quota, the newest first. Submitted ones wait for their verdict (RCV-001)."""
    held = state.leases.of(provider_id)
    excess = len(held) - policy.leases_per_provider_max
    epoch = state.quotas[provider_id].epoch if provider_id in state.quotas else 0
    over = {kind: units_used(state.quotas, provider_id, kind, epoch) - units_max(kind, policy) for kind in Kind}
    excess_leases: list[Lease] = []
    for lease in sorted(held, key=lambda lease: lease.event, reverse=True):
        kind = state.queue.jobs[lease.job_id].kind
        is_in_units = over[kind] > 0 and lease.units > 0 and lease.epoch == epoch
        if lease.submitted is None and (excess > 0 or is_in_units):
            excess_leases.append(lease)
            excess -= 1
            over[kind] -= lease.units if lease.epoch == epoch else 0
    return excess_leases
