"""A provider as the state keeps it: its transition table (PRV-001), and the row of the table `provider`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.base import fsm
from holdfast.core.base.canonical import H, canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import OwnershipTaken
from holdfast.core.base.fsm import Transitions
from holdfast.core.base.values import PPM, AccountId, EventNo, Height, ProviderId, ReservationId
from holdfast.core.escrow.model import Ledger
from holdfast.core.index.touch import Touched
from holdfast.core.index.unique_ids import Claims
from holdfast.core.policy import Policy, ProviderPolicy
from holdfast.core.provider.provider_timers import ProviderTimers

PROVIDER_TAG: Final = "AICF|prov"
STAKE_TAG: Final = "holdfast.stake.v1"
SLASH_TAG: Final = "holdfast.slash.v1"
SLASHED: Final = AccountId("slashed")
"""The account that receives penalties; it belongs to no provider."""
SYSTEM_ACTOR: Final = "holdfast"
"""The actor of transitions that the node makes by itself."""
HEALTH_MAX_PPM: Final = PPM
ANY_MODEL: Final = "*"
"""In a map of prices: the price of all models that it does not name."""


def split_price(price: int | dict[str, int]) -> tuple[int, bytes]:
    """`Provider.price` and `Provider.prices` of a price as it is declared: one for all, or a map by model."""
    if isinstance(price, int):
        return price, b""
    named = {name: each for name, each in price.items() if name != ANY_MODEL}
    return price.get(ANY_MODEL, 0), canonical(named) if named else b""


def provider_id(public: bytes) -> ProviderId:
    """PRV-001: a provider's id is the hash of its first key."""
    return ProviderId(H(PROVIDER_TAG, public))


def stake_reservation_id(id_: ProviderId) -> ReservationId:
    """A provider's stake is a reservation of its own money, with this id."""
    return ReservationId(H(STAKE_TAG, id_))


def slash_reservation_id(id_: ProviderId, number: EventNo) -> ReservationId:
    """The penalty of this event is a separate reservation, so that a reorg can move it alone."""
    return ReservationId(H(SLASH_TAG, id_, number))


DECLARED: Final = (
    "name", "account", "capabilities", "region", "price", "slots", "prices", "attested_until_ms", "attestor", "versions"
)  # fmt: skip
"""What a provider declares and may declare anew; the same declaration again is a repeat."""


class ProviderStatus(StrEnum):
    """Where a provider is (PRV-001)."""

    REGISTERED = "REGISTERED"
    ACTIVE = "ACTIVE"
    JAILED = "JAILED"
    SUSPENDED = "SUSPENDED"
    RETIRED = "RETIRED"


class ProviderTransition(StrEnum):
    """What can happen to a provider."""

    ACTIVATE = "activate"
    JAIL = "jail"
    UNJAIL = "unjail"
    SUSPEND = "suspend"
    RECOVER = "recover"
    RETIRE = "retire"
    LAPSE = "lapse"
    """It withdrew so much of its stake that the rest is below the minimum."""


_OUT: Final = {ProviderTransition.RETIRE: ProviderStatus.RETIRED, ProviderTransition.JAIL: ProviderStatus.JAILED}

PROVIDER_TRANSITIONS: Final[Transitions[ProviderStatus, ProviderTransition]] = {
    ProviderStatus.REGISTERED: {ProviderTransition.ACTIVATE: ProviderStatus.ACTIVE, **_OUT},
    ProviderStatus.ACTIVE: {
        ProviderTransition.SUSPEND: ProviderStatus.SUSPENDED,
        ProviderTransition.LAPSE: ProviderStatus.REGISTERED,
        **_OUT,
    },
    ProviderStatus.SUSPENDED: {ProviderTransition.RECOVER: ProviderStatus.ACTIVE, **_OUT},
    ProviderStatus.JAILED: {
        ProviderTransition.UNJAIL: ProviderStatus.REGISTERED,
        ProviderTransition.RETIRE: ProviderStatus.RETIRED,
    },
    ProviderStatus.RETIRED: {},
}
_SHOW: Final = "`holdfast provider show` says how it is; a provider that was retired registers with a new key"


class Provider(msgspec.Struct, array_like=True, gc=False):
    """One provider; a row of the table `provider`."""

    id: ProviderId
    event: EventNo
    public: bytes
    name: str
    account: AccountId
    """It receives the fees and pays the stake."""
    capabilities: bytes
    """Canonical map by kind: what it can run (MAT-002)."""
    region: str
    price: int
    """For a unit of work, where `prices` has no other one for the model."""
    slots: int
    """How many leases it takes at a time."""
    attested_until_ms: int
    registered_ms: int
    status: ProviderStatus = ProviderStatus.REGISTERED
    stake: int = 0
    health_ppm: int = HEALTH_MAX_PPM
    heartbeat_ms: int = 0
    leases: int = 0
    """Live ones."""
    completed: int = 0
    failed: int = 0
    failures_in_row: int = 0
    cooling_until_ms: int = 0
    is_draining: int = 0
    current_key: bytes = b""
    """What it signs with since it changed its key; empty where that is still `public`."""
    cooldowns: int = 0
    """Cooldowns since its last completed job: each doubles the next one."""
    missed_heartbeats: int = 0
    """Heartbeats that are missing since the last one."""
    jailed_until: int = 0
    """The height at which its jail term ends; 0 while jailed: an operator ends it."""
    unstaking: int = 0
    """Requested back and locked: it counts as stake no more, but can still be slashed."""
    unstake_height: int = 0
    unstake_ms: int = 0
    """From this height and this time on it is released."""
    slashed: int = 0
    """All penalties so far."""
    offended_ms: int = 0
    """When it last offended (PRV-004)."""
    reason: str = ""
    """Why it is not active, in the words of the actor; empty where it is active."""
    status_changed_by: str = ""
    denied_by_list: str = ""
    """Which of the operator's lists keeps it from work."""
    load: int = 0
    """Leases that it reported to work on, at its last heartbeat."""
    attestor: str = ""
    """Who checked its attestation."""
    versions: str = ""
    """The versions that it reports."""
    prices: bytes = b""
    """Canonical map from the name of a model to its price, where it is not `price`; empty where there is none."""

    @property
    def signing_key(self) -> bytes:
        """PRV-003: the key that its messages are verified with. Its id stays that of its first key."""
        return self.current_key or self.public

    @property
    def at_stake(self) -> int:
        """PRV-004: all that can be slashed."""
        return self.stake + self.unstaking


def why_not_transition(provider: Provider, transition: ProviderTransition) -> Refused | None:
    """Why the table does not allow this transition, None where it does."""
    why = fsm.why_not_transition(PROVIDER_TRANSITIONS, provider.status, transition)
    return Refused("PRV-001", f"provider {provider.id.hex()}: {why}", _SHOW) if why else None


class HasProviders(Protocol):
    """The parts of the state that this domain reads and changes."""

    policy: Policy
    ledger: Ledger
    providers: dict[ProviderId, Provider]
    listings: dict[str, str]
    """What the operator allows and denies: `provider:ID` or `region:NAME` to `allow` or `deny`."""
    outage_credited_term: dict[int, int]
    """Under 0: the term whose outage was last credited to providers (LEA-008)."""
    provider_timers: ProviderTimers
    changed_providers: set[ProviderId]
    """Providers that changed since the last tick (match/provider_index)."""
    owner: OwnershipTaken | None
    claims: Claims
    touched: Touched
    last_event: EventNo

    @property
    def open_height(self) -> Height: ...


def provider_id_of_key(state: HasProviders, public: bytes) -> ProviderId:
    """The provider of a key: a rotated key belongs to the provider that rotated to it."""
    return state.provider_timers.rotated_keys.get(public) or provider_id(public)


def why_not_key(state: HasProviders, id_: ProviderId, public: bytes) -> Refused | None:
    """PRV-003: signatures of a replaced key are not accepted any more."""
    known = state.providers.get(id_)
    if known is None or known.signing_key == public:
        return None
    return Refused("PRV-003", "this key was replaced", "sign with the provider's current key", "Unauthorized")


STAKES: Final = {"AI": "stake_ai_min", "QUANTUM": "stake_quantum_min", "COMPUTE": "stake_ai_min"}
"""COMPUTE needs as much as AI."""


def stake_min(kinds: Iterable[str], policy: ProviderPolicy) -> int:
    """MAT-002: the sum of the minima of its declared capabilities."""
    return sum(int(getattr(policy, STAKES[kind])) for kind in kinds if kind in STAKES)


ATTESTORS: Final = {
    "AI": "attestors_required_ai",
    "QUANTUM": "attestors_required_quantum",
    "COMPUTE": "attestors_required_ai",
}


def unattested_kinds(provider: Provider, policy: ProviderPolicy) -> tuple[str, ...]:
    """PRV-005: the kinds for which policy requires an attestor, and none of those has attested this provider."""
    required = ((kind, getattr(policy, name)) for kind, name in ATTESTORS.items())
    return tuple(kind for kind, names in required if names and provider.attestor not in names)
