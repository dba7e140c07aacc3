"""Whether a provider is eligible for a job (MAT-002): each filter returns its reason, which can be shown (MAT-006)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

from holdfast.core.base.canonical import decode
from holdfast.core.base.values import AccountId, Height, Kind, ProviderId
from holdfast.core.job.job_class import denied_until, job_class
from holdfast.core.job.model import Job, ceiling_of
from holdfast.core.job.spec import RESOURCES, work_name
from holdfast.core.lease.model import HasLeases
from holdfast.core.lease.quorum import why_not_distinct
from holdfast.core.match.requester_window import RequesterWindow, why_not_window
from holdfast.core.policy import Policy
from holdfast.core.provider.model import ANY_MODEL, Provider, ProviderStatus, stake_min, unattested_kinds
from holdfast.core.queue import quota
from holdfast.core.queue.decide import epoch_of
from holdfast.core.queue.pauses import Paused


class HasEligibility(HasLeases, Protocol):
    """The parts of the state that the filters read."""

    paused: dict[str, Paused]
    requester_windows: dict[AccountId, RequesterWindow]

    @property
    def beacon(self) -> tuple[Height, bytes]: ...


def why_not_eligible(state: HasEligibility, provider: Provider, job: Job, now_ms: int) -> str | None:
    """MAT-006: why this provider cannot get this job now; None where it can."""
    return why_not_available(provider, state.policy, now_ms) or why_not_for_job(state, provider, job, now_ms)


def why_not_available(provider: Provider, policy: Policy, now_ms: int) -> str | None:
    """The filters that depend on no job; a provider that passes them is available to a tick."""
    rules = policy.provider
    checks = (
        (provider.status is ProviderStatus.ACTIVE, f"status {provider.status}"),
        (now_ms < provider.attested_until_ms + rules.attestation_skew_ms, "attestation over"),
        (
            provider.stake >= stake_min(list(decode_map(provider.capabilities)), rules),
            f"stake {provider.stake} too low",
        ),
        (provider.health_ppm >= policy.match.min_health_ppm, f"health {provider.health_ppm} ppm too low"),
        (now_ms < provider.heartbeat_ms + rules.heartbeat_stale_ms, "heartbeat not fresh"),
        (not provider.is_draining, "draining"),
        (now_ms >= provider.cooling_until_ms, "cooling down"),
    )
    return next((reason for is_met, reason in checks if not is_met), None)


def why_not_for_job(state: HasEligibility, provider: Provider, job: Job, now_ms: int) -> str | None:
    """The filters that depend on the job, with the current load."""
    policy, id_, kind = state.policy, provider.id, job.kind
    if kind.value in state.paused:
        return f"{kind} is paused"
    if reason := why_not_fit(provider, job, policy) or why_not_distinct(state, id_, job):
        return reason
    used, most = quota.units_used(state.quotas, id_, kind, epoch_of(state)), quota.units_max(kind, policy.quota)
    if used + job.units > most:
        return f"{used} of {most} units of this epoch used, {job.units} more needed"
    if now_ms < denied_until(state.class_denials, id_, job_class(kind, job.requirements)):
        return "skipped for this class of jobs for a while"
    return why_not_window(state.requester_windows, job.caller, job.tier, policy.match, now_ms)


def why_not_fit(provider: Provider, job: Job, policy: Policy) -> str | None:
    """The filters that need only the two records and the policy."""
    if provider.leases >= lease_cap(provider, policy):
        return "no free slot"
    return why_not_ever(provider, job, policy)


def why_not_ever(provider: Provider, job: Job, policy: Policy) -> str | None:
    """Those of them that do not depend on the provider's load."""
    return (
        why_not_able(profile_of(provider, policy), job.kind, job.requirements)
        or _why_too_expensive(provider, job)
        or _why_not_allowed(provider.id, job)
    )


def lease_cap(provider: Provider, policy: Policy) -> int:
    """QUO-001: as many leases as it accepts, and never more than the quota."""
    return min(provider.slots, policy.quota.leases_per_provider_max)


class Profile(NamedTuple):
    """The parts of a provider that do not depend on load or time: providers with equal profiles fit the same jobs."""

    capabilities: bytes
    region: str
    denied_by_list: str
    """Which of the operator's lists keeps it from work; empty where none does."""
    price: int
    prices: bytes
    unattested: tuple[str, ...]
    """The kinds for which policy requires an attestor that has not attested it (PRV-005)."""


def profile_of(provider: Provider, policy: Policy) -> Profile:
    return Profile(
        capabilities=provider.capabilities,
        region=provider.region,
        denied_by_list=provider.denied_by_list,
        price=provider.price,
        prices=provider.prices,
        unattested=unattested_kinds(provider, policy.provider),
    )


def price_of(offer: Provider | Profile, requirements: bytes) -> int:
    """MAT-002: the price of a unit of work for jobs with these requirements."""
    if not offer.prices:
        return offer.price
    price: int = decode_map(offer.prices).get(work_name(decode_map(requirements), ANY_MODEL), offer.price)
    return price


def _why_too_expensive(provider: Provider, job: Job) -> str | None:
    price, ceiling = price_of(provider, job.requirements), ceiling_of(job)
    return f"price {price} for a unit, the fee pays {ceiling}" if price > ceiling else None


def why_not_able(profile: Profile, kind: Kind, requirements: bytes) -> str | None:
    """Why providers of this profile can never do such a job; None where they can."""
    if profile.denied_by_list:
        return f"the operator's lists: {profile.denied_by_list}"
    needs = decode_map(requirements)
    if (region := needs.get("region")) is not None and region != profile.region:
        return f"region {profile.region}, not {region}"
    if kind.value in profile.unattested:
        return f"attested by none of those that policy requires for {kind}"
    can = decode_map(profile.capabilities).get(kind.value)
    return f"does not run {kind}" if can is None else _why_not_capable(can, needs) or _why_not_labelled(can, needs)


def _why_not_labelled(can: dict[str, Any], needs: dict[str, Any]) -> str | None:
    """MAT-002: a label is declared with the kind of work that it is about, and matched as the region is."""
    declared = can.get("labels", {})
    for name, value in needs.get("labels", {}).items():
        if declared.get(name) != value:
            return f"label {name}={declared.get(name, '(none)')}, not {value}"
    return None


def _why_not_capable(can: dict[str, Any], needs: dict[str, Any]) -> str | None:
    checks = (
        ("model" not in needs or needs["model"] in can.get("models", ()), "model"),
        ("runtime" not in needs or needs["runtime"] in can.get("runtimes", ()), "runtime"),
        ("precision" not in needs or needs["precision"] in can.get("precisions", ()), "precision"),
        (set(needs.get("gates", ())) <= set(can.get("gates", ())), "gates"),
        (needs.get("depth", 0) <= can.get("depth_max", 0), "depth"),
        (needs.get("width", 0) <= can.get("width_max", 0), "width"),
        *((needs.get(name, 0) <= can.get(name, 0), name) for name in RESOURCES),
    )
    return next((f"{name} does not fit" for is_met, name in checks if not is_met), None)


def _why_not_allowed(id_: ProviderId, job: Job) -> str | None:
    allowed, denied = allow_deny(job.requirements)
    if id_ in denied:
        return "the job denies it"
    return "the job allows only others" if allowed is not None and id_ not in allowed else None


@lru_cache(maxsize=4_096)
def allow_deny(requirements: bytes) -> tuple[frozenset[bytes] | None, frozenset[bytes]]:
    """The providers that a job allows (None: all), and those that it denies; ids are bytes or their hex."""
    needs = decode_map(requirements)
    allowed, denied = needs.get("allow"), needs.get("deny", ())
    return None if allowed is None else frozenset(map(_id, allowed)), frozenset(map(_id, denied))


def _id(given: bytes | str) -> bytes:
    return bytes.fromhex(given) if isinstance(given, str) else given


@lru_cache(maxsize=4_096)
def decode_map(packed: bytes) -> dict[str, Any]:
    """A canonical map, cached."""
    return cast(dict[str, Any], decode(packed))
