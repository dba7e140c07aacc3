"""Whether a provider is taken in, and what its stake and its heartbeats make of it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from holdfast.core import claim
from holdfast.core.canon import H, NotCanonical, decode
from holdfast.core.escrow.books import MINT
from holdfast.core.event import Decided, Event
from holdfast.core.provider.acts import (
    Beat,
    HealthMoved,
    HeartbeatTaken,
    ProviderRegistered,
    ProviderStaked,
    Register,
    Stake,
    stake_key,
)
from holdfast.core.provider.health import heard
from holdfast.core.provider.record import (
    ITSELF,
    SLASHED,
    Provider,
    ProviderAct,
    ProviderStatus,
    Registry,
    holder_of,
    stake_min,
    why_not_key,
)
from holdfast.core.provider.steps import moved
from holdfast.core.refusal import Refused
from holdfast.core.values import Kind, ProviderId

SLOTS_MAX: Final = 1_000_000
STRANGERS_MAX: Final = 20_000
"""How many may be known that have nothing at stake: to register costs nothing, and every one is kept in memory."""
VERSIONS_MAX, REASON_MAX = 200, 200
CAPABILITIES_BYTES_MAX: Final = 16 << 10
NOBODYS: Final = frozenset({MINT, SLASHED})
SUPPORT_TAG: Final = "holdfast.support.v1"
_ACCOUNT: Final = re.compile(r"[a-z0-9][a-z0-9:._-]{0,127}")


def register(state: Registry, command: Register, now_ms: int) -> Decided | Refused:
    """PRV-001: a provider is taken in under its key; saying the same again changes nothing."""
    if no := _why_not_registered(state, command, now_ms):
        return no
    id_ = holder_of(state, command.public)
    known = state.providers.get(id_)
    told = (command.name, command.account, command.capabilities, command.region, command.price, command.slots)
    attested = (command.attested_until_ms, command.attestor, command.versions)
    event = ProviderRegistered(id_, command.public, *told, attested[0], now_ms, *attested[1:])
    if known is None:
        return _why_not_met(state) or Decided((event,))
    if known.status is ProviderStatus.RETIRED:
        return Refused("PRV-001", f"{known.status} is final", "register with another key")
    if no := why_not_key(state, id_, command.public):
        return no
    same = (known.name, known.account, known.capabilities, known.region, known.price, known.slots)
    if (same, (known.attested_until_ms, known.attestor, known.versions)) == (told, attested):
        return Decided((), since=known.event)
    if known.account != command.account and known.at_stake:
        return Refused("PRV-001", f"the stake is {known.account}'s", "unstake before changing the account")
    return Decided((event,))


def _why_not_met(state: Registry) -> Refused | None:
    """SEC-001: what strangers can fill is bounded; who stakes or retires makes room."""
    if len(state.ward.strangers) < STRANGERS_MAX:
        return None
    says, hint = f"{STRANGERS_MAX} providers with nothing at stake are known", "the operator can retire some"
    return Refused("PRV-001", says, hint, "BackPressure")


def _why_not_registered(state: Registry, command: Register, now_ms: int) -> Refused | None:
    skew_ms = state.policy.provider.attestation_skew_ms
    wrong = {
        "public: must be an Ed25519 key of 32 bytes": len(command.public) != 32,
        "name: 1–64 printable signs": not 1 <= len(command.name) <= 64 or not command.name.isprintable(),
        "account: 1–128 of a-z 0-9 : . _ -": not _ACCOUNT.fullmatch(command.account),
        f"account: {command.account} is nobody's": command.account in NOBODYS,
        "region: at most 64 printable signs": len(command.region) > 64 or not command.region.isprintable(),
        "price: must not be negative": not 0 <= command.price < 2**62,
        f"slots: 1 … {SLOTS_MAX}": not 1 <= command.slots <= SLOTS_MAX,
        "capabilities: a canonical map from kind to what it takes": not kinds_of(command.capabilities),
        f"capabilities: at most {CAPABILITIES_BYTES_MAX} bytes": len(command.capabilities) > CAPABILITIES_BYTES_MAX,
        "attested_until_ms: the attestation is over": command.attested_until_ms + skew_ms <= now_ms,
        "attested_until_ms: too far ahead": command.attested_until_ms >= 2**62,
        f"versions: at most {VERSIONS_MAX} printable signs": not is_versions(command.versions),
    }
    found = "; ".join(says for says, is_so in wrong.items() if is_so)
    return Refused("PRV-001", found, name="InvalidParams") if found else None


class _Ai(msgspec.Struct):
    models: list[str] = []
    precisions: list[str] = []


class _Quantum(msgspec.Struct):
    gates: list[str] = []
    depth_max: int = 0
    width_max: int = 0


class _Capabilities(msgspec.Struct):
    """What of them is compared when a job is matched (MAT-002): it must have the shape that matching counts on."""

    AI: _Ai | None = None
    QUANTUM: _Quantum | None = None


@lru_cache(maxsize=1_024)
def kinds_of(capabilities: bytes) -> tuple[str, ...]:
    """Which kinds of jobs a provider says it can run; none where that cannot be read.

    Read once: it is asked at every heartbeat, and what a stranger registers may be long.
    """
    try:
        told = decode(capabilities)
        msgspec.convert(told, _Capabilities)
    except (NotCanonical, msgspec.ValidationError):
        return ()
    if not isinstance(told, dict) or not all(isinstance(each, dict) for each in told.values()):
        return ()
    return tuple(kind for kind in told if kind in set(Kind))


def is_versions(told: str) -> bool:
    return len(told) <= VERSIONS_MAX and (told.isprintable() or not told)


def is_reason(told: str) -> bool:
    return len(told) <= REASON_MAX and told.isprintable()


def stake(state: Registry, command: Stake, now_ms: int) -> Decided | Refused:
    """Money that is final can be put at stake (ESC-002); enough of it makes a provider that is there active."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if provider.status is ProviderStatus.RETIRED:
        return Refused("PRV-001", f"{provider.status} is final", "register with another key")
    if len(command.request) != 32:
        return Refused("PRV-001", f"request: {len(command.request)} bytes, must be 32", name="InvalidParams")
    staked = ProviderStaked(command.id, command.amount, command.request)
    if known := claim.why_not_first(state.claims, stake_key(staked), staked):
        return known
    account = state.ledger.accounts.get(provider.account)
    available = account.available if account is not None else 0
    if not 0 < command.amount <= available:
        says = f"{provider.account} has {available} available, {command.amount} asked for"
        return Refused("ESC-001", says, name="InsufficientFunds")
    at_stake = provider.stake + command.amount
    return Decided((staked, *_activated(state, provider, at_stake, provider.heartbeat_ms, now_ms)))


def beat(state: Registry, command: Beat, now_ms: int) -> Decided | Refused:
    """PRV-002: a heartbeat says that it is there, how much it takes and has; it brings back who was poor."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if provider.status is ProviderStatus.RETIRED:
        return Refused("PRV-001", f"{provider.status} is final", "register with another key")
    if no := _why_not_beat(provider, command):
        return no
    taken = HeartbeatTaken(command.id, now_ms, command.slots, command.load, command.versions)
    healed = heard(state, provider, now_ms)
    active = _activated(state, provider, provider.stake, now_ms, now_ms)
    return Decided((taken, *healed, *active, *_recovered(state, provider, healed)))


def _why_not_beat(provider: Provider, command: Beat) -> Refused | None:
    checks = (
        (0 <= command.slots <= SLOTS_MAX, f"slots: 0 … {SLOTS_MAX}"),
        (0 <= command.load <= SLOTS_MAX, f"load: 0 … {SLOTS_MAX}"),
        (is_versions(command.versions), f"versions: at most {VERSIONS_MAX} printable signs"),
    )
    if says := next((says for holds, says in checks if not holds), None):
        return Refused("PRV-002", says, name="InvalidParams")
    if command.support and command.support != support_of(provider.capabilities):
        return Refused("PRV-002", "what it supports is not what it registered", "register anew")
    return None


def support_of(capabilities: bytes) -> bytes:
    """What a heartbeat says of its capabilities: their digest."""
    return H(SUPPORT_TAG, capabilities)


def _activated(state: Registry, provider: Provider, at_stake: int, heartbeat_ms: int, now_ms: int) -> tuple[Event, ...]:
    """PRV-001: REGISTERED becomes ACTIVE when the stake is reached and a heartbeat is there."""
    policy = state.policy.provider
    enough = stake_min(kinds_of(provider.capabilities), policy)
    is_heard = heartbeat_ms and now_ms < heartbeat_ms + policy.heartbeat_stale_ms
    if provider.status is not ProviderStatus.REGISTERED or not is_heard or at_stake < enough:
        return ()
    return (moved(state, provider, ProviderAct.ACTIVATE, f"stake {at_stake} of {enough}, heartbeat"),)


def _recovered(state: Registry, provider: Provider, healed: tuple[HealthMoved, ...]) -> tuple[Event, ...]:
    """PRV-002: who was suspended for its health is active again once it is well; whom an operator suspended is not."""
    health_ppm = provider.health_ppm + sum(each.by_ppm for each in healed)
    is_ours = provider.status is ProviderStatus.SUSPENDED and provider.moved_by == ITSELF
    if not is_ours or health_ppm < state.policy.match.min_health_ppm:
        return ()
    return (moved(state, provider, ProviderAct.RECOVER, f"health {health_ppm} ppm, heartbeat"),)


def provider_of(state: Registry, id_: ProviderId) -> Provider | Refused:
    found = state.providers.get(id_)
    return found or Refused("PRV-001", f"no provider {id_.hex()}", "register first", "NotFound")
