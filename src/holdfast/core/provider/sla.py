"""The SLA engine (PRV-004, RTY-003): how grave an offence is, what it costs, and how long it keeps one in jail."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from holdfast.core.event import Event
from holdfast.core.policy import ProviderPolicy
from holdfast.core.provider.acts import ProviderSlashed
from holdfast.core.provider.record import Provider, ProviderAct, ProviderStatus, Registry
from holdfast.core.provider.steps import may, moved
from holdfast.core.values import Amount

WHOLE_PPM: Final = 1_000_000


class Severity(StrEnum):
    """How grave it is."""

    MINOR = "minor"
    MAJOR = "major"
    SEVERE = "severe"


OFFENCES: Final = {
    "PROOF_INVALID": (Severity.MINOR, Severity.MAJOR),
    "EQUIVOCATION": (Severity.SEVERE, Severity.SEVERE),
    "QUORUM_MINORITY": (Severity.MINOR, Severity.MAJOR),
}
"""Each offence as it is the first time, and as it is within the window after another one."""


def severity_of(provider: Provider, reason: str, policy: ProviderPolicy, now_ms: int) -> Severity:
    first, again = OFFENCES[reason]
    is_again = provider.offended_ms and now_ms < provider.offended_ms + policy.offence_window_ms
    return again if is_again else first


def penalty_of(provider: Provider, severity: Severity, policy: ProviderPolicy) -> Amount:
    """A part of all that can be lost, rounded down: never more than that."""
    share_ppm = int(getattr(policy, f"slash_{severity}_ppm"))
    return Amount(provider.at_stake * share_ppm // WHOLE_PPM)


def sentence(state: Registry, provider: Provider, reason: str, now_ms: int) -> tuple[Event, ...]:
    """PRV-004: what an offence costs. Its leases are ended by `Tend`, as those of every jailed provider (LEA-007)."""
    policy = state.policy.provider
    severity = severity_of(provider, reason, policy, now_ms)
    blocks = int(getattr(policy, f"jail_{severity}_blocks"))
    until = _until(state, provider, blocks)
    told = (reason, penalty_of(provider, severity, policy), severity.value, until, now_ms, state.open_height)
    slashed = ProviderSlashed(provider.id, *told)
    if not blocks or not may(provider, ProviderAct.JAIL):
        return (slashed,)
    return slashed, moved(state, provider, ProviderAct.JAIL, f"{reason}, {severity}", until=until)


def _until(state: Registry, provider: Provider, blocks: int) -> int:
    """The height at which it is out again; who sits already sits no shorter, and who sits for good stays."""
    until = state.open_height + blocks
    if provider.status is ProviderStatus.JAILED:
        return max(until, provider.jailed_until) if provider.jailed_until else 0
    return until if blocks and may(provider, ProviderAct.JAIL) else 0
