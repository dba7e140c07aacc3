"""A provider as it is kept: its life as one table (PRV-001), and the record that is a row of the table `provider`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.canon import H
from holdfast.core.claim import Claims
from holdfast.core.escrow.books import Ledger
from holdfast.core.machine import Life
from holdfast.core.policy import Policy, ProviderPolicy
from holdfast.core.touch import Touched
from holdfast.core.values import AccountId, EventNo, Height, HoldId, ProviderId

PROVIDER_TAG: Final = "AICF|prov"
STAKE_TAG: Final = "holdfast.stake.v1"
HEALTH_WHOLE: Final = 1_000_000


def provider_id(public: bytes) -> ProviderId:
    """PRV-001: a provider is its key."""
    return ProviderId(H(PROVIDER_TAG, public))


def stake_id(id_: ProviderId) -> HoldId:
    """What a provider has at stake is a reservation of its own money, under this name."""
    return HoldId(H(STAKE_TAG, id_))


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


_OUT: Final = {ProviderAct.RETIRE: ProviderStatus.RETIRED, ProviderAct.JAIL: ProviderStatus.JAILED}

PROVIDER_LIFE: Final[Life[ProviderStatus, ProviderAct]] = {
    ProviderStatus.REGISTERED: {ProviderAct.ACTIVATE: ProviderStatus.ACTIVE, **_OUT},
    ProviderStatus.ACTIVE: {ProviderAct.SUSPEND: ProviderStatus.SUSPENDED, **_OUT},
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


class Registry(Protocol):
    """What this station needs of the state."""

    policy: Policy
    ledger: Ledger
    providers: dict[ProviderId, Provider]
    claims: Claims
    touched: Touched
    last_event: EventNo

    @property
    def open_height(self) -> Height: ...


STAKES: Final = {"AI": "stake_ai_min", "QUANTUM": "stake_quantum_min"}


def stake_min(kinds: list[str], policy: ProviderPolicy) -> int:
    """MAT-002: the sum of the minima of what it says it can do."""
    return sum(int(getattr(policy, STAKES[kind])) for kind in kinds if kind in STAKES)
