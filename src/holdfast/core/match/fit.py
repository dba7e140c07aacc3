"""Whether a provider may have a job (MAT-002): each filter has a name, so that every no can be told (MAT-006)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

from holdfast.core import quota
from holdfast.core.canon import decode
from holdfast.core.job.klass import denied_until, job_class
from holdfast.core.job.record import Job
from holdfast.core.lease.quorum import Held, why_not_distinct
from holdfast.core.match.chance import epoch_id
from holdfast.core.match.fairness import Window, why_not_window
from holdfast.core.policy import Policy
from holdfast.core.provider.record import Provider, ProviderStatus, stake_min
from holdfast.core.queue.pauses import Paused
from holdfast.core.quota import Quota
from holdfast.core.values import AccountId, Height, Kind, ProviderId


class Offering(Held, Protocol):
    """What must be known besides the provider and the job."""

    policy: Policy
    quotas: dict[ProviderId, Quota]
    denials: dict[bytes, int]
    paused: dict[str, Paused]
    windows: dict[AccountId, Window]

    @property
    def beacon(self) -> tuple[Height, bytes]: ...


def why_not(state: Offering, provider: Provider, job: Job, now_ms: int) -> str | None:
    """MAT-006: the filter that refuses this job to this provider now; None where it could have it."""
    return why_not_listed(provider, state.policy, now_ms) or why_not_now(state, provider, job, now_ms)


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


def why_not_now(state: Offering, provider: Provider, job: Job, now_ms: int) -> str | None:
    """The filters that are asked for each job, with loads as they are now."""
    policy, id_, kind = state.policy, provider.id, job.kind
    if kind.value in state.paused:
        return f"{kind} is paused"
    if no := why_not_fit(provider, job, policy) or why_not_distinct(state, id_, job):
        return no
    used, most = quota.units_used(state.quotas, id_, kind, epoch_of(state)), quota.units_max(kind, policy.quota)
    if used + job.units > most:
        return f"{used} of {most} units of this epoch used, {job.units} more asked for"
    if now_ms < denied_until(state.denials, id_, job_class(kind, job.requirements)):
        return "passed over for this class of jobs for a while"
    return why_not_window(state.windows, job.caller, job.tier, policy.match, now_ms)


def epoch_of(state: Offering) -> int:
    """QUO-001: the epoch whose units count now, that of the head."""
    return epoch_id(state.beacon[0], state.policy.chain.epoch_blocks)


def why_not_fit(provider: Provider, job: Job, policy: Policy) -> str | None:
    """Those that need no more than the two records."""
    if provider.leases >= lease_cap(provider, policy):
        return "no free slot"
    return why_not_able(profile_of(provider), job.kind, job.requirements) or _why_not_wanted(provider.id, job)


def lease_cap(provider: Provider, policy: Policy) -> int:
    """QUO-001: as many as it takes, and never more than the quota."""
    return min(provider.slots, policy.quota.leases_per_provider_max)


class Profile(NamedTuple):
    """All of a provider that its load and the time do not change: providers that are alike here fit the same jobs."""

    capabilities: bytes
    region: str
    barred: str
    """Which of the operator's lists keeps it from work; empty where none does."""


def profile_of(provider: Provider) -> Profile:
    return Profile(provider.capabilities, provider.region, provider.barred)


def why_not_able(profile: Profile, kind: Kind, requirements: bytes) -> str | None:
    """Whether providers of this profile can do what is asked at all."""
    if profile.barred:
        return f"the operator's lists: {profile.barred}"
    needs = read(requirements)
    if (region := needs.get("region")) is not None and region != profile.region:
        return f"region {profile.region}, not {region}"
    can = read(profile.capabilities).get(kind.value)
    return f"does not run {kind}" if can is None else _why_not_capable(can, needs)


def _why_not_capable(can: dict[str, Any], needs: dict[str, Any]) -> str | None:
    checks = (
        ("model" not in needs or needs["model"] in can.get("models", ()), "model"),
        ("precision" not in needs or needs["precision"] in can.get("precisions", ()), "precision"),
        (set(needs.get("gates", ())) <= set(can.get("gates", ())), "gates"),
        (needs.get("depth", 0) <= can.get("depth_max", 0), "depth"),
        (needs.get("width", 0) <= can.get("width_max", 0), "width"),
    )
    return next((f"{name} does not fit" for holds, name in checks if not holds), None)


def _why_not_wanted(id_: ProviderId, job: Job) -> str | None:
    allowed, denied = wishes(job.requirements)
    if id_ in denied:
        return "the job denies it"
    return "the job allows only others" if allowed is not None and id_ not in allowed else None


@lru_cache(maxsize=4_096)
def wishes(requirements: bytes) -> tuple[frozenset[bytes] | None, frozenset[bytes]]:
    """Whom a job allows, None where everybody, and whom it denies; ids are bytes or their hex."""
    needs = read(requirements)
    allowed, denied = needs.get("allow"), needs.get("deny", ())
    return None if allowed is None else frozenset(map(_id, allowed)), frozenset(map(_id, denied))


def _id(told: bytes | str) -> bytes:
    return bytes.fromhex(told) if isinstance(told, str) else told


@lru_cache(maxsize=4_096)
def read(packed: bytes) -> dict[str, Any]:
    """A canonical map, read once."""
    return cast(dict[str, Any], decode(packed))
