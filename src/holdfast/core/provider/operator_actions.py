"""Requests of a provider or an operator that end no lease: drain, unstake, rotate the key; and the operator's lists of
providers and regions that are allowed or denied work (PRV-001, MAT-002)."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.records import record_from
from holdfast.core.base.values import Height
from holdfast.core.escrow.decide import why_not_amount
from holdfast.core.index import unique_ids
from holdfast.core.policy import ProviderPolicy
from holdfast.core.provider.decide import REASON_MAX, check_not_retired, is_valid_reason, provider_of, stake_min_of
from holdfast.core.provider.messages import (
    Drain,
    ListingChanged,
    ProviderDrained,
    RotateSigner,
    SetListing,
    SignerRotated,
    Unstake,
    UnstakeRequested,
    status_change,
    time_independent_unstake,
    unstake_key,
)
from holdfast.core.provider.model import HasProviders, Provider, ProviderStatus, ProviderTransition, provider_id

ALLOW, DENY = "allow", "deny"
_SUBJECT: Final = re.compile(r"provider:[0-9a-f]{64}|region:.{1,64}")
BAD_REASON: Final = Refused("PRV-001", f"reason: at most {REASON_MAX} printable characters", name="InvalidParams")


def drain(state: HasProviders, command: Drain, _now_ms: int) -> Decided | Refused:
    """A draining provider finishes its leases and gets no new ones; switched off, it gets work again."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if not is_valid_reason(command.reason):
        return BAD_REASON
    if refusal := check_not_retired(provider):
        return refusal
    if bool(provider.is_draining) is command.is_draining:
        return Decided((), repeat_of=state.last_event)
    after = command.is_draining
    drained = record_from(
        ProviderDrained, command, before=not after, after=after, actor=command.by, height=state.open_height
    )
    return Decided((drained,))


def unstake(state: HasProviders, command: Unstake, now_ms: int) -> Decided | Refused:
    """Money leaves the stake at once and is released after its lock; until then it can still be slashed (PRV-004).

    Below the minimum an active provider becomes REGISTERED again; with live leases, or suspended, it is refused.
    """
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if len(command.request) != 32:
        return Refused("PRV-001", f"request: {len(command.request)} bytes, must be 32", name="InvalidParams")
    rules = state.policy.provider
    height, free_ms = Height(state.open_height + rules.unstake_lock_blocks), now_ms + rules.unstake_cooldown_ms
    requested = record_from(UnstakeRequested, command, unstake_height=height, unstake_ms=free_ms, actor=command.by)
    if earlier := unique_ids.check_unique(state.claims, unstake_key(requested), time_independent_unstake(requested)):
        return earlier
    if refusal := _why_not_unstake(provider, command, rules):
        return refusal
    left, needed = provider.stake - command.amount, stake_min_of(provider, rules)
    if left >= needed or provider.status is not ProviderStatus.ACTIVE:
        return Decided((requested,))
    reason = f"stake {left} of {needed}"
    return Decided((requested, status_change(state, provider, ProviderTransition.LAPSE, reason)))


def _why_not_unstake(provider: Provider, command: Unstake, policy: ProviderPolicy) -> Refused | None:
    if refusal := why_not_amount(command.amount):
        return refusal
    left, status = provider.stake - command.amount, provider.status
    is_short = left < stake_min_of(provider, policy) and status is not ProviderStatus.RETIRED
    checks = (
        (command.amount <= provider.stake, f"{provider.stake} is at stake, {command.amount} requested", ""),
        (not provider.unstaking, f"{provider.unstaking} is unstaking already", "wait until it is released"),
        (status is not ProviderStatus.JAILED, f"it is {status}", "wait until its jail term ends"),
        (not (is_short and status is ProviderStatus.SUSPENDED), f"it is {status}", "recover or retire first"),
        (not (is_short and provider.leases), f"it holds {provider.leases} leases", "drain first, or leave the minimum"),
    )
    return next((Refused("PRV-001", fault, hint) for is_valid, fault, hint in checks if not is_valid), None)


def rotate(state: HasProviders, command: RotateSigner, _now_ms: int) -> Decided | Refused:
    """PRV-003: the same provider with another key, while it has no lease under the old one."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if provider.signing_key == command.public:
        return Decided((), repeat_of=state.last_event)
    is_taken = command.public in state.provider_timers.rotated_keys or provider_id(command.public) in state.providers
    checks = (
        (len(command.public) == 32, "public: must be an Ed25519 key of 32 bytes", "InvalidParams"),
        (not is_taken or command.public == provider.public, "this key is or was another provider's", "Refused"),
        (provider.status is not ProviderStatus.RETIRED, f"{ProviderStatus.RETIRED} is final", "Refused"),
        (not provider.leases, f"it holds {provider.leases} leases under its old key", "Refused"),
    )
    if fault := next(((message, name) for is_valid, message, name in checks if not is_valid), None):
        message, name = fault
        return Refused("PRV-003", message, "drain first" if provider.leases else "", name)
    rotated = SignerRotated(provider.id, provider.signing_key, command.public, command.by, state.open_height)
    return Decided((rotated,))


# ------------------------------------------------------------------------------------------------ the operator's lists


def set_listing(state: HasProviders, command: SetListing, _now_ms: int) -> Decided | Refused:
    """MAT-002: a denied provider or region gets no work; as soon as any is allowed, only allowed ones get work."""
    if not _SUBJECT.fullmatch(command.subject) or not command.subject.isprintable():
        message, hint = f"subject: {command.subject!r:.90}", "provider:ID or region:NAME"
        return Refused("MAT-002", message, hint, "InvalidParams")
    if command.verdict not in (ALLOW, DENY, ""):
        return Refused("MAT-002", f"verdict: {command.verdict!r:.20}", "allow or deny, or nothing", "InvalidParams")
    if not is_valid_reason(command.reason):
        return BAD_REASON
    before = state.listings.get(command.subject, "")
    if before == command.verdict:
        return Decided((), repeat_of=state.last_event)
    changed = record_from(
        ListingChanged, command, before=before, after=command.verdict, actor=command.by, height=state.open_height
    )
    return Decided((changed,))


def exclusive_subjects(listings: Mapping[str, str]) -> frozenset[str]:
    """The kinds of subject with an allowed entry: of these kinds only allowed subjects get work."""
    return frozenset(subject.partition(":")[0] for subject, verdict in listings.items() if verdict == ALLOW)


def why_denied_by_list(provider: Provider, listings: Mapping[str, str], only: Container[str]) -> str:
    """The list that denies it work; empty where none does. `only` comes from `exclusive_subjects`."""
    for kind, name, subject in (("provider", provider.id.hex(), ""), ("region", provider.region, "its region is ")):
        verdict = listings.get(f"{kind}:{name}")
        if verdict == DENY:
            return f"{subject}denied"
        if verdict != ALLOW and kind in only:
            return f"{subject}not among those allowed"
    return ""
