"""Whether a provider is taken in, and what its stake and its heartbeats make of it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from holdfast.core import claim
from holdfast.core.canon import NotCanonical, decode
from holdfast.core.event import Decided, Event
from holdfast.core.provider.acts import (
    Beat,
    HeartbeatTaken,
    ProviderMoved,
    ProviderRegistered,
    ProviderStaked,
    Register,
    Stake,
    stake_key,
)
from holdfast.core.provider.record import Provider, ProviderStatus, Registry, provider_id, stake_min
from holdfast.core.refusal import Refused
from holdfast.core.values import Kind, ProviderId

SLOTS_MAX: Final = 1_000_000
_ACCOUNT: Final = re.compile(r"[a-z0-9][a-z0-9:._-]{0,127}")


def register(state: Registry, command: Register, now_ms: int) -> Decided | Refused:
    """PRV-001: a provider is taken in under its key; saying the same again changes nothing."""
    if no := _why_not_registered(state, command, now_ms):
        return no
    id_ = provider_id(command.public)
    known = state.providers.get(id_)
    told = (command.name, command.account, command.capabilities, command.region, command.price, command.slots)
    event = ProviderRegistered(id_, command.public, *told, command.attested_until_ms, now_ms)
    if known is None:
        return Decided((event,))
    same = (known.name, known.account, known.capabilities, known.region, known.price, known.slots)
    if (same, known.attested_until_ms) == (told, command.attested_until_ms):
        return Decided((), since=known.event)
    if known.account != command.account and known.stake:
        return Refused("PRV-001", f"the stake is {known.account}'s", "unstake before changing the account")
    return Decided((event,))


def _why_not_registered(state: Registry, command: Register, now_ms: int) -> Refused | None:
    wrong = {
        "public: must be an Ed25519 key of 32 bytes": len(command.public) != 32,
        "name: 1–64 printable signs": not 1 <= len(command.name) <= 64 or not command.name.isprintable(),
        "account: 1–128 of a-z 0-9 : . _ -": not _ACCOUNT.fullmatch(command.account) or command.account == "mint",
        "region: at most 64 printable signs": len(command.region) > 64 or not command.region.isprintable(),
        "price: must not be negative": not 0 <= command.price < 2**62,
        f"slots: 1 … {SLOTS_MAX}": not 1 <= command.slots <= SLOTS_MAX,
        "capabilities: a canonical map from kind to what it takes": not kinds_of(command.capabilities),
        "attested_until_ms: the attestation is over": command.attested_until_ms <= now_ms,
        "attested_until_ms: too far ahead": command.attested_until_ms >= 2**62,
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


def kinds_of(capabilities: bytes) -> list[str]:
    """Which kinds of jobs a provider says it can run; none where that cannot be read."""
    try:
        told = decode(capabilities)
        msgspec.convert(told, _Capabilities)
    except (NotCanonical, msgspec.ValidationError):
        return []
    if not isinstance(told, dict) or not all(isinstance(each, dict) for each in told.values()):
        return []
    return [kind for kind in told if kind in set(Kind)]


def stake(state: Registry, command: Stake, _now_ms: int) -> Decided | Refused:
    """Money that is final can be put at stake (ESC-002); enough of it makes a provider that is there active."""
    provider = _provider(state, command.id)
    if isinstance(provider, Refused):
        return provider
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
    return Decided((staked, *_activated(state, provider, provider.stake + command.amount, provider.heartbeat_ms)))


def beat(state: Registry, command: Beat, now_ms: int) -> Decided | Refused:
    """PRV-002: a heartbeat says that it is there and how much it takes."""
    provider = _provider(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if not 0 <= command.slots <= SLOTS_MAX:
        return Refused("PRV-002", f"slots: 0 … {SLOTS_MAX}", name="InvalidParams")
    taken = HeartbeatTaken(command.id, now_ms, command.slots)
    return Decided((taken, *_activated(state, provider, provider.stake, now_ms)))


def _activated(state: Registry, provider: Provider, at_stake: int, heartbeat_ms: int) -> tuple[Event, ...]:
    """PRV-001: REGISTERED becomes ACTIVE when the stake is reached and the first heartbeat was there."""
    enough = stake_min(kinds_of(provider.capabilities), state.policy.provider)
    if provider.status is not ProviderStatus.REGISTERED or not heartbeat_ms or at_stake < enough:
        return ()
    reason = f"stake {at_stake} of {enough}, heartbeat"
    moved = (provider.id, provider.status, ProviderStatus.ACTIVE, reason, "holdfast", state.open_height)
    return (ProviderMoved(*moved),)


def _provider(state: Registry, id_: ProviderId) -> Provider | Refused:
    found = state.providers.get(id_)
    return found or Refused("PRV-001", f"no provider {id_.hex()}", "register first", "NotFound")
