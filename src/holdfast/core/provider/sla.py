"""The SLA engine (PRV-004, RTY-003): how severe an offence is, what it costs, and how long the jail term is."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from holdfast.core.base.event import Event
from holdfast.core.base.values import PPM, Amount
from holdfast.core.policy import ProviderPolicy
from holdfast.core.provider.messages import ProviderSlashed, status_change
from holdfast.core.provider.model import HasProviders, Provider, ProviderStatus, ProviderTransition, why_not_transition


class Severity(StrEnum):
    """How severe an offence is."""

    MINOR = "minor"
    MAJOR = "major"
    SEVERE = "severe"


OFFENCES: Final = {
    "PROOF_INVALID": (Severity.MINOR, Severity.MAJOR),
    "EQUIVOCATION": (Severity.SEVERE, Severity.SEVERE),
    "QUORUM_MINORITY": (Severity.MINOR, Severity.MAJOR),
}
"""The severity of each offence: the first time, and within the window after another one."""


def severity_of(provider: Provider, reason: str, policy: ProviderPolicy, now_ms: int) -> Severity:
    first, again = OFFENCES[reason]
    is_again = provider.offended_ms and now_ms < provider.offended_ms + policy.offence_window_ms
    return again if is_again else first


def penalty_of(provider: Provider, severity: Severity, policy: ProviderPolicy) -> Amount:
    """A part of all that can be slashed, rounded down."""
    share_ppm = int(getattr(policy, f"slash_{severity}_ppm"))
    return Amount(provider.at_stake * share_ppm // PPM)


def on_offence(state: HasProviders, provider: Provider, reason: str, now_ms: int) -> tuple[Event, ...]:
    """PRV-004: the penalty of an offence. `MaintainProviders` ends the leases of a jailed provider (LEA-007)."""
    policy = state.policy.provider
    severity = severity_of(provider, reason, policy, now_ms)
    blocks = int(getattr(policy, f"jail_{severity}_blocks"))
    is_newly_jailed = blocks > 0 and why_not_transition(provider, ProviderTransition.JAIL) is None
    until = state.open_height + blocks if is_newly_jailed else 0
    if provider.status is ProviderStatus.JAILED and provider.jailed_until:  # never shortened; one without end stays
        until = max(state.open_height + blocks, provider.jailed_until)
    slashed = ProviderSlashed(
        id=provider.id,
        reason=reason,
        penalty=penalty_of(provider, severity, policy),
        severity=severity.value,
        jailed_until=until,
        at_ms=now_ms,
        height=state.open_height,
    )
    if not is_newly_jailed:
        return (slashed,)
    return slashed, status_change(state, provider, ProviderTransition.JAIL, f"{reason}, {severity}", until=until)
