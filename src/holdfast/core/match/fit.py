"""Whether a provider may have a job (MAT-002): each filter has a name, so that every no can be told."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from holdfast.core.canon import decode
from holdfast.core.job.record import Job
from holdfast.core.policy import Policy
from holdfast.core.provider.record import Provider, ProviderStatus, stake_min


def why_not_listed(provider: Provider, policy: Policy, now_ms: int) -> str | None:
    """The filters that depend on no job: who passes them is in the snapshot of a tick."""
    rules = policy.provider
    checks = (
        (provider.status is ProviderStatus.ACTIVE, f"status {provider.status}"),
        (now_ms < provider.attested_until_ms + rules.attestation_skew_ms, "attestation over"),
        (provider.stake >= stake_min(list(read(provider.capabilities)), rules), f"stake {provider.stake} too low"),
        (provider.health_ppm >= policy.match.min_health_ppm, f"health {provider.health_ppm} ppm too low"),
        (now_ms < provider.heartbeat_ms + rules.heartbeat_stale_ms, "heartbeat not fresh"),
        (not provider.is_draining, "draining"),
        (now_ms >= provider.cooling_until_ms, "cooling down"),
    )
    return next((says for holds, says in checks if not holds), None)


def why_not_fit(provider: Provider, job: Job, policy: Policy) -> str | None:
    """The filters that are asked for each job, with loads as they are after the assignments before."""
    if provider.leases >= min(provider.slots, policy.quota.leases_per_provider_max):
        return "no free slot"
    needs = read(job.requirements)
    if (region := needs.get("region")) is not None and region != provider.region:
        return f"region {provider.region}, not {region}"
    can = read(provider.capabilities).get(job.kind.value)
    if can is None:
        return f"does not run {job.kind}"
    return _why_not_capable(can, needs)


def _why_not_capable(can: dict[str, Any], needs: dict[str, Any]) -> str | None:
    checks = (
        ("model" not in needs or needs["model"] in can.get("models", ()), "model"),
        ("precision" not in needs or needs["precision"] in can.get("precisions", ()), "precision"),
        (set(needs.get("gates", ())) <= set(can.get("gates", ())), "gates"),
        (needs.get("depth", 0) <= can.get("depth_max", 0), "depth"),
        (needs.get("width", 0) <= can.get("width_max", 0), "width"),
    )
    return next((f"{name} does not fit" for holds, name in checks if not holds), None)


@lru_cache(maxsize=4_096)
def read(packed: bytes) -> dict[str, Any]:
    """A canonical map, read once."""
    return cast(dict[str, Any], decode(packed))
