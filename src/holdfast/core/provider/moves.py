"""What a provider does with itself, or an operator for it, that ends no lease: drain, take stake back, change the key;
and the operator's lists of whom to give work at all (PRV-001, MAT-002)."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Final

from holdfast.core import claim
from holdfast.core.event import Decided
from holdfast.core.policy import Policy
from holdfast.core.provider.acts import (
    Drain,
    List,
    ListingChanged,
    ProviderDrained,
    RotateSigner,
    SignerRotated,
    Unstake,
    UnstakeAsked,
    unstake_key,
    unstake_wish,
)
from holdfast.core.provider.decide import is_reason, kinds_of, provider_of
from holdfast.core.provider.record import (
    Provider,
    ProviderAct,
    ProviderStatus,
    Registry,
    provider_id,
    stake_min,
)
from holdfast.core.provider.steps import moved
from holdfast.core.refusal import Refused
from holdfast.core.values import Height

ALLOW, DENY = "allow", "deny"
_SUBJECT: Final = re.compile(r"provider:[0-9a-f]{64}|region:.{1,64}")
_BAD_REASON: Final = Refused("PRV-001", "reason: at most 200 printable signs", name="InvalidParams")


def drain(state: Registry, command: Drain, _now_ms: int) -> Decided | Refused:
    """It finishes what it has and is given nothing more; the other way round it is given work again."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if not is_reason(command.reason):
        return _BAD_REASON
    if provider.status is ProviderStatus.RETIRED:
        return Refused("PRV-001", f"{ProviderStatus.RETIRED} is final")
    if bool(provider.is_draining) is command.is_draining:
        return Decided((), since=state.last_event)
    before = bool(provider.is_draining)
    told = (command.reason, command.by, state.open_height)
    return Decided((ProviderDrained(provider.id, before, command.is_draining, *told),))


def unstake(state: Registry, command: Unstake, now_ms: int) -> Decided | Refused:
    """Money leaves the stake at once and comes back when its lock is over; until then it can still be lost (PRV-004).

    Below the minimum an active provider is REGISTERED again; with leases in hand, or suspended, it is refused.
    """
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if len(command.request) != 32:
        return Refused("PRV-001", f"request: {len(command.request)} bytes, must be 32", name="InvalidParams")
    rules = state.policy.provider
    height, free_ms = Height(state.open_height + rules.unstake_lock_blocks), now_ms + rules.unstake_cooldown_ms
    asked = UnstakeAsked(provider.id, command.amount, command.request, height, free_ms, command.by)
    if known := claim.why_not_first(state.claims, unstake_key(asked), unstake_wish(asked)):
        return known
    if no := _why_not_unstaked(provider, command, state.policy):
        return no
    left = provider.stake - command.amount
    if left >= _enough(provider, state.policy) or provider.status is not ProviderStatus.ACTIVE:
        return Decided((asked,))
    reason = f"stake {left} of {_enough(provider, state.policy)}"
    return Decided((asked, moved(state, provider, ProviderAct.LAPSE, reason)))


def _enough(provider: Provider, policy: Policy) -> int:
    return stake_min(kinds_of(provider.capabilities), policy.provider)


def _why_not_unstaked(provider: Provider, command: Unstake, policy: Policy) -> Refused | None:
    left, status = provider.stake - command.amount, provider.status
    is_short = left < _enough(provider, policy) and status is not ProviderStatus.RETIRED
    checks = (
        (0 < command.amount <= provider.stake, f"{provider.stake} is at stake, {command.amount} asked for", ""),
        (not provider.unstaking, f"{provider.unstaking} is on its way back already", "wait until it is free"),
        (status is not ProviderStatus.JAILED, f"it is {status}", "wait until it is let out"),
        (not (is_short and status is ProviderStatus.SUSPENDED), f"it is {status}", "recover or retire first"),
        (not (is_short and provider.leases), f"it holds {provider.leases} leases", "drain first, or leave the minimum"),
    )
    says, hint = next(((says, hint) for holds, says, hint in checks if not holds), ("", ""))
    return Refused("PRV-001", says, hint) if says else None


def rotate(state: Registry, command: RotateSigner, _now_ms: int) -> Decided | Refused:
    """PRV-003: the same provider with another key, while nothing is under way that the old one has signed."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if provider.signing_key == command.public:
        return Decided((), since=state.last_event)
    is_taken = command.public in state.ward.keyring or provider_id(command.public) in state.providers
    checks = (
        (len(command.public) == 32, "public: must be an Ed25519 key of 32 bytes", "InvalidParams"),
        (not is_taken or command.public == provider.public, "this key is or was another provider's", "Refused"),
        (provider.status is not ProviderStatus.RETIRED, f"{ProviderStatus.RETIRED} is final", "Refused"),
        (not provider.leases, f"it holds {provider.leases} leases that its old key answers for", "Refused"),
    )
    if no := next(((says, name) for holds, says, name in checks if not holds), None):
        return Refused("PRV-003", no[0], "drain first" if provider.leases else "", no[1])
    told = (provider.signing_key, command.public, command.by, state.open_height)
    return Decided((SignerRotated(provider.id, *told),))


# ------------------------------------------------------------------------------------------------ the operator's lists


def list_(state: Registry, command: List, _now_ms: int) -> Decided | Refused:
    """MAT-002: who is denied gets no work; as soon as any is allowed, only those who are."""
    if not _SUBJECT.fullmatch(command.subject) or not command.subject.isprintable():
        says, hint = f"subject: {command.subject!r:.90}", "provider:ID or region:NAME"
        return Refused("MAT-002", says, hint, "InvalidParams")
    if command.verdict not in (ALLOW, DENY, ""):
        return Refused("MAT-002", f"verdict: {command.verdict!r:.20}", "allow or deny, or nothing", "InvalidParams")
    if not is_reason(command.reason):
        return _BAD_REASON
    before = state.listings.get(command.subject, "")
    if before == command.verdict:
        return Decided((), since=state.last_event)
    told = (command.reason, command.by, state.open_height)
    return Decided((ListingChanged(command.subject, before, command.verdict, *told),))


def exclusive(listings: Mapping[str, str]) -> frozenset[str]:
    """Of which kind of subject any is allowed, so that all others of it are not."""
    return frozenset(subject.partition(":")[0] for subject, verdict in listings.items() if verdict == ALLOW)


def why_barred(provider: Provider, listings: Mapping[str, str], only: Container[str]) -> str:
    """Which list keeps this one from work; empty where none does. `only` is what `exclusive` says of the lists."""
    for kind, name in (("provider", provider.id.hex()), ("region", provider.region)):
        verdict = listings.get(f"{kind}:{name}")
        if verdict == DENY:
            return f"its {kind} is denied" if kind == "region" else "denied"
        if verdict != ALLOW and kind in only:
            return f"its {kind} is not among those allowed" if kind == "region" else "not among those allowed"
    return ""
