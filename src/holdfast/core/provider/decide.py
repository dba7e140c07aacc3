"""Whether a provider is registered, and what its stake and its heartbeats change."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Final

import msgspec

from holdfast.core.base.canonical import H, NotCanonical, canonical, decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.records import record_from
from holdfast.core.base.values import ACCOUNT_NAME, Kind, ProviderId
from holdfast.core.escrow.decide import check_funds, why_not_amount
from holdfast.core.escrow.model import MINT
from holdfast.core.index import unique_ids
from holdfast.core.policy import ProviderPolicy
from holdfast.core.provider.health import on_heartbeat
from holdfast.core.provider.invitations import use_invitation
from holdfast.core.provider.messages import (
    HealthChanged,
    Heartbeat,
    HeartbeatReceived,
    ProviderRegistered,
    ProviderStaked,
    Register,
    Stake,
    stake_key,
    status_change,
)
from holdfast.core.provider.model import (
    DECLARED,
    SLASHED,
    SYSTEM_ACTOR,
    HasProviders,
    Provider,
    ProviderStatus,
    ProviderTransition,
    provider_id_of_key,
    stake_min,
    why_not_key,
)

SLOTS_MAX: Final = 1_000_000
PRICES_MAX: Final = 64
"""How many models may have a price of their own."""
UNSTAKED_MAX: Final = 20_000
"""How many providers without a stake there may be: registering costs nothing, and each takes memory."""
INVITED_SHARE: Final = 4
"""Every fourth place is given by an invitation alone."""
VERSIONS_MAX, REASON_MAX = 200, 200
CAPABILITIES_BYTES_MAX: Final = 16 << 10
SYSTEM_ACCOUNTS: Final = frozenset({MINT, SLASHED})
SUPPORT_TAG: Final = "holdfast.support.v1"


def register(state: HasProviders, command: Register, now_ms: int) -> Decided | Refused:
    """PRV-001: a provider is registered under its key; the same declaration again changes nothing."""
    if refusal := _why_not_registered(state, command, now_ms):
        return refusal
    id_ = provider_id_of_key(state, command.public)
    known = state.providers.get(id_)
    event = record_from(ProviderRegistered, command, id=id_, registered_ms=now_ms)
    used = use_invitation(state, command, id_, now_ms)
    if isinstance(used, Refused):
        return used
    if known is None:
        return _check_unstaked_limit(state, is_invited=bool(used)) or Decided((event, *used))
    if refusal := check_not_retired(known) or why_not_key(state, id_, command.public):
        return refusal
    declaration = attrgetter(*DECLARED)
    if declaration(known) == declaration(command):
        return Decided(used, repeat_of=None if used else known.event)
    if known.account != command.account and known.at_stake:
        return Refused("PRV-001", f"the stake is {known.account}'s", "unstake before changing the account")
    return Decided((event, *used))


def _check_unstaked_limit(state: HasProviders, *, is_invited: bool) -> Refused | None:
    """SEC-001: the number of providers without a stake is bounded; one that stakes or retires makes room.

    SEC-002: registering costs nothing, so a part of the places is for those whom an operator has invited.
    """
    most = UNSTAKED_MAX if is_invited else UNSTAKED_MAX - UNSTAKED_MAX // INVITED_SHARE
    if len(state.provider_timers.unstaked) < most:
        return None
    hint = "ask the operator for an invitation, or to retire some"
    return Refused("PRV-001", f"there are {most} providers without a stake", hint, "BackPressure")


def _why_not_registered(state: HasProviders, command: Register, now_ms: int) -> Refused | None:
    skew_ms = state.policy.provider.attestation_skew_ms
    faults = {
        "public: must be an Ed25519 key of 32 bytes": len(command.public) != 32,
        "name: 1–64 printable characters": not 1 <= len(command.name) <= 64 or not command.name.isprintable(),
        "account: 1–128 of a-z 0-9 : . _ -": not ACCOUNT_NAME.fullmatch(command.account),
        f"account: {command.account} is a system account": command.account in SYSTEM_ACCOUNTS,
        "region: at most 64 printable characters": len(command.region) > 64 or not command.region.isprintable(),
        "price: must not be negative": not 0 <= command.price < 2**62,
        f"price: at most {PRICES_MAX} models, each 0 … 2⁶² − 1": not _is_valid_prices(command.prices),
        f"slots: 1 … {SLOTS_MAX}": not 1 <= command.slots <= SLOTS_MAX,
        "capabilities: a canonical map from kind to what it takes": not kinds_of(command.capabilities),
        f"capabilities: at most {CAPABILITIES_BYTES_MAX} bytes": len(command.capabilities) > CAPABILITIES_BYTES_MAX,
        "attested_until_ms: the attestation is over": command.attested_until_ms + skew_ms <= now_ms,
        "attested_until_ms: too far ahead": command.attested_until_ms >= 2**62,
        f"versions: at most {VERSIONS_MAX} printable characters": not is_valid_versions(command.versions),
    }
    message = "; ".join(fault for fault, is_present in faults.items() if is_present)
    return Refused("PRV-001", message, name="InvalidParams") if message else None


def _is_valid_prices(packed: bytes) -> bool:
    """MAT-002: a canonical map, so that equal prices are equal bytes."""
    try:
        prices = msgspec.convert(decode(packed), dict[str, _Price]) if packed else {}
    except (NotCanonical, msgspec.ValidationError):
        return False
    return len(prices) <= PRICES_MAX and packed != canonical({})


_Price = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _Ai(msgspec.Struct):
    models: list[str] = []
    precisions: list[str] = []
    labels: dict[str, str] = {}


class _Quantum(msgspec.Struct):
    gates: list[str] = []
    depth_max: int = 0
    width_max: int = 0
    labels: dict[str, str] = {}


class _Compute(msgspec.Struct):
    runtimes: list[str] = []
    cpu_milli: int = 0
    memory_mb: int = 0
    gpus: int = 0
    labels: dict[str, str] = {}


class _Capabilities(msgspec.Struct):
    """The part of the capabilities that matching reads (MAT-002), in the shape that it expects."""

    AI: _Ai | None = None
    QUANTUM: _Quantum | None = None
    COMPUTE: _Compute | None = None


@lru_cache(maxsize=1_024)
def kinds_of(capabilities: bytes) -> tuple[str, ...]:
    """The kinds of jobs that a provider declares; none where its capabilities cannot be read.

    Cached: every heartbeat needs it, and capabilities may be long.
    """
    try:
        by_kind = decode(capabilities)
        msgspec.convert(by_kind, _Capabilities)
    except (NotCanonical, msgspec.ValidationError):
        return ()
    if not isinstance(by_kind, dict) or not all(isinstance(value, dict) for value in by_kind.values()):
        return ()
    return tuple(kind for kind in by_kind if kind in set(Kind))


def stake_min_of(provider: Provider, policy: ProviderPolicy) -> int:
    return stake_min(kinds_of(provider.capabilities), policy)


def is_valid_versions(versions: str) -> bool:
    return len(versions) <= VERSIONS_MAX and versions.isprintable()


def is_valid_reason(reason: str) -> bool:
    return len(reason) <= REASON_MAX and reason.isprintable()


def stake(state: HasProviders, command: Stake, now_ms: int) -> Decided | Refused:
    """Final money can be staked (ESC-002); with enough stake a provider that sends heartbeats becomes active."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if refusal := check_not_retired(provider):
        return refusal
    if len(command.request) != 32:
        return Refused("PRV-001", f"request: {len(command.request)} bytes, must be 32", name="InvalidParams")
    staked = ProviderStaked(command.id, command.amount, command.request)
    if earlier := unique_ids.check_unique(state.claims, stake_key(staked), staked):
        return earlier
    if refusal := why_not_amount(command.amount) or check_funds(state.ledger, provider.account, command.amount):
        return refusal
    at_stake = provider.stake + command.amount
    return Decided((staked, *_activation_events(state, provider, at_stake, provider.heartbeat_ms, now_ms)))


def heartbeat(state: HasProviders, command: Heartbeat, now_ms: int) -> Decided | Refused:
    """PRV-002: a heartbeat reports load and free slots; in time, it recovers a provider that the node suspended."""
    provider = provider_of(state, command.id)
    if isinstance(provider, Refused):
        return provider
    if refusal := check_not_retired(provider) or _why_not_heartbeat(provider, command):
        return refusal
    received = HeartbeatReceived(command.id, now_ms, command.slots, command.load, command.versions)
    healed = on_heartbeat(state, provider, now_ms)
    active = _activation_events(state, provider, provider.stake, now_ms, now_ms)
    return Decided((received, *healed, *active, *_recovery_events(state, provider, healed)))


def _why_not_heartbeat(provider: Provider, command: Heartbeat) -> Refused | None:
    checks = (
        (0 <= command.slots <= SLOTS_MAX, f"slots: 0 … {SLOTS_MAX}"),
        (0 <= command.load <= SLOTS_MAX, f"load: 0 … {SLOTS_MAX}"),
        (is_valid_versions(command.versions), f"versions: at most {VERSIONS_MAX} printable characters"),
    )
    if message := next((fault for is_valid, fault in checks if not is_valid), None):
        return Refused("PRV-002", message, name="InvalidParams")
    if command.support and command.support != capabilities_digest(provider.capabilities):
        return Refused("PRV-002", "the capabilities are not the registered ones", "register again")
    return None


def capabilities_digest(capabilities: bytes) -> bytes:
    """The digest of capabilities that a heartbeat carries."""
    return H(SUPPORT_TAG, capabilities)


def _activation_events(
    state: HasProviders, provider: Provider, at_stake: int, heartbeat_ms: int, now_ms: int
) -> tuple[Event, ...]:
    """PRV-001: REGISTERED becomes ACTIVE with the minimum stake and a fresh heartbeat."""
    policy = state.policy.provider
    needed = stake_min_of(provider, policy)
    is_fresh = heartbeat_ms and now_ms < heartbeat_ms + policy.heartbeat_stale_ms
    if provider.status is not ProviderStatus.REGISTERED or not is_fresh or at_stake < needed:
        return ()
    return (status_change(state, provider, ProviderTransition.ACTIVATE, f"stake {at_stake} of {needed}, heartbeat"),)


def _recovery_events(state: HasProviders, provider: Provider, healed: tuple[HealthChanged, ...]) -> tuple[Event, ...]:
    """PRV-002: a provider that the node suspended recovers with its health; one that an operator suspended does not."""
    health_ppm = provider.health_ppm + sum(change.by_ppm for change in healed)
    is_by_node = provider.status is ProviderStatus.SUSPENDED and provider.status_changed_by == SYSTEM_ACTOR
    if not is_by_node or health_ppm < state.policy.match.min_health_ppm:
        return ()
    return (status_change(state, provider, ProviderTransition.RECOVER, f"health {health_ppm} ppm, heartbeat"),)


def provider_of(state: HasProviders, id_: ProviderId) -> Provider | Refused:
    provider = state.providers.get(id_)
    return provider or Refused("PRV-001", f"no provider {id_.hex()}", "register first", "NotFound")


def check_not_retired(provider: Provider) -> Refused | None:
    if provider.status is not ProviderStatus.RETIRED:
        return None
    return Refused("PRV-001", f"{ProviderStatus.RETIRED} is final", "register with another key")
