"""Limits that forbid the goals of a measurement: raised for it and printed; the defaults stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.api.grpc.settings import GrpcSettings
from holdfast.core.base.values import Network
from holdfast.core.policy import Policy

RAISED: Mapping[str, Mapping[str, int]] = {
    "quota": {"leases_per_provider_max": 16, "ai_units_per_epoch": 10**12},
    "admission": {"in_flight_per_requester_max": 10**6},
}
"""Limits of the policy that forbid the goals; leases a provider are as many as its slots, if that is more."""
ACTS = ("acts_per_s", "acts_burst")
"""Limits of the gRPC server: what one provider may say in a second."""
ACTS_MAX = 100_000


def raised_limits(slots: int) -> dict[str, str]:
    """Settings without which the goals are forbidden."""
    changed = {
        f"HOLDFAST_POLICY__{part}__{name}".upper(): str(max(limit, slots) if "leases" in name else limit)
        for part, limits in RAISED.items()
        for name, limit in limits.items()
    }
    return changed | {f"HOLDFAST_GRPC__{name}".upper(): str(ACTS_MAX) for name in ACTS}


def describe_limits(slots: int) -> str:
    """What was raised, and from where: the defaults stay as they are."""
    policy, said = Policy.for_network(Network.DEVELOPMENT), []
    for name, value in raised_limits(slots).items():
        part, setting = _path(name)
        default = getattr(GrpcSettings() if part == "grpc" else getattr(policy, part), setting)
        said.append(f"{part}.{setting} {default} → {value}")
    return f"limits raised for {slots} slots: {', '.join(said)}; requests over the local socket have no limit per key"


def _path(name: str) -> tuple[str, str]:
    part, _, setting = name.lower().removeprefix("holdfast_").removeprefix("policy__").partition("__")
    return part, setting
