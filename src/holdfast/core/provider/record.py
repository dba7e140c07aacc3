"""A provider as it is kept: its life as one table (PRV-001), and the record that is a row of the table `provider`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.canon import H
from holdfast.core.claim import Claims
from holdfast.core.escrow.books import Ledger
from holdfast.core.event import OwnershipTaken
from holdfast.core.machine import Life
from holdfast.core.policy import Policy, ProviderPolicy
from holdfast.core.provider.ward import Ward
from holdfast.core.refusal import Refused
from holdfast.core.touch import Touched
from holdfast.core.values import AccountId, EventNo, Height, HoldId, ProviderId

PROVIDER_TAG: Final = "AICF|prov"
STAKE_TAG: Final = "holdfast.stake.v1"
SLASH_TAG: Final = "holdfast.slash.v1"
SLASHED: Final = AccountId("slashed")
"""Where penalties go; no provider's account."""
ITSELF: Final = "holdfast"
"""The actor of what nobody asked for."""
HEALTH_WHOLE: Final = 1_000_000


def provider_id(public: bytes) -> ProviderId:
    """PRV-001: a provider is its key."""
    return ProviderId(H(PROVIDER_TAG, public))


def stake_id(id_: ProviderId) -> HoldId:
    """What a provider has at stake is a reservation of its own money, under this name."""
    return HoldId(H(STAKE_TAG, id_))


def slash_id(id_: ProviderId, number: EventNo) -> HoldId:
    """What the event of this number took of a stake is a reservation of its own, so that a reorg can move it alone."""
    return HoldId(H(SLASH_TAG, id_, number))


class ProviderStatus(StrEnum):
    """Where a provider is (PRV-001)."""

    REGISTERED = "REGISTERED"
    ACTIVE = "ACTIVE"
    JAILED = "JAILED"
    SUSPENDED = "SUSPENDED"
    RETIRED = "RETIRED"


class ProviderAct(StrEnum):
    """What can happen to a provider."""

    ACTIVATE = "activate"
    JAIL = "jail"
    UNJAIL = "unjail"
    SUSPEND = "suspend"
    RECOVER = "recover"
    RETIRE = "retire"
    LAPSE = "lapse"
    """It took back so much of its stake that what is left is too little."""


_OUT: Final = {ProviderAct.RETIRE: ProviderStatus.RETIRED, ProviderAct.JAIL: ProviderStatus.JAILED}

PROVIDER_LIFE: Final[Life[ProviderStatus, ProviderAct]] = {
    ProviderStatus.REGISTERED: {ProviderAct.ACTIVATE: ProviderStatus.ACTIVE, **_OUT},
    ProviderStatus.ACTIVE: {
        ProviderAct.SUSPEND: ProviderStatus.SUSPENDED,
        ProviderAct.LAPSE: ProviderStatus.REGISTERED,
        **_OUT,
    },
    ProviderStatus.SUSPENDED: {ProviderAct.RECOVER: ProviderStatus.ACTIVE, **_OUT},
    ProviderStatus.JAILED: {
        ProviderAct.UNJAIL: ProviderStatus.REGISTERED,
        ProviderAct.RETIRE: ProviderStatus.RETIRED,
    },
    ProviderStatus.RETIRED: {},
}


class Provider(msgspec.Struct, array_like=True, gc=False):
    """One provider; a row of the table `provider`."""

    id: ProviderId
    event: EventNo
    public: bytes
    name: str
    account: AccountId
    """Where its fees go and its stake comes from."""
    capabilities: bytes
    """Canonical map by kind: what it can run (MAT-002)."""
    region: str
    price: int
    """For a unit of work."""
    slots: int
    """How many leases it takes at a time."""
    attested_until_ms: int
    registered_ms: int
    status: ProviderStatus = ProviderStatus.REGISTERED
    stake: int = 0
    health_ppm: int = HEALTH_WHOLE
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
    """How often it was cooled down since it last did well: the next one lasts twice as long for each."""
    missed: int = 0
    """Heartbeats that did not come since the last one that did."""
    jailed_until: int = 0
    """The height at which it is let out by itself; 0 while it is jailed: when an operator says so."""
    unstaking: int = 0
    """On its way back to the account: it counts for nothing any more, but can still be lost."""
    unstake_height: int = 0
    unstake_ms: int = 0
    """From this height and this time on it is given back."""
    slashed: int = 0
    """What it has lost so far."""
    offended_ms: int = 0
    """When it last offended (PRV-004)."""
    reason: str = ""
    """Why it is not active, as whoever decided it said; empty where it is."""
    moved_by: str = ""
    barred: str = ""
    """Which of the operator's lists keeps it from work."""
    load: int = 0
    """Leases that it said it works on, at its last heartbeat."""
    attestor: str = ""
    """Who checked its attestation."""
    versions: str = ""
    """What it says it runs."""

    @property
    def signing_key(self) -> bytes:
        """PRV-003: what its messages are checked with. Its id stays that of its first key."""
        return self.current_key or self.public

    @property
    def at_stake(self) -> int:
        """PRV-004: all that can be lost."""
        return self.stake + self.unstaking


class Registry(Protocol):
    """What this station needs of the state."""

    policy: Policy
    ledger: Ledger
    providers: dict[ProviderId, Provider]
    listings: dict[str, str]
    """What the operator allows and denies: `provider:ID` or `region:NAME` to `allow` or `deny`."""
    forgiven: dict[int, int]
    """Under 0: the epoch whose outage was last forgiven to providers (LEA-008)."""
    ward: Ward
    stale: set[ProviderId]
    """Who changed since matching last looked (core/match/supply)."""
    owner: OwnershipTaken | None
    claims: Claims
    touched: Touched
    last_event: EventNo

    @property
    def open_height(self) -> Height: ...


def holder_of(state: Registry, public: bytes) -> ProviderId:
    """Whose key this is: a changed key belongs to the provider that changed to it."""
    return state.ward.keyring.get(public) or provider_id(public)


def why_not_key(state: Registry, id_: ProviderId, public: bytes) -> Refused | None:
    """PRV-003: a key that was replaced signs nothing any more."""
    known = state.providers.get(id_)
    if known is None or known.signing_key == public:
        return None
    return Refused("PRV-003", "this key was replaced", "sign with the provider's current key", "Unauthorized")


STAKES: Final = {"AI": "stake_ai_min", "QUANTUM": "stake_quantum_min"}


def stake_min(kinds: Iterable[str], policy: ProviderPolicy) -> int:
    """MAT-002: the sum of the minima of what it says it can do."""
    return sum(int(getattr(policy, STAKES[kind])) for kind in kinds if kind in STAKES)
