"""What can be asked about providers and what then happened: the station's commands and events."""

from __future__ import annotations

import msgspec

from holdfast.core.event import Event
from holdfast.core.provider.record import ProviderStatus
from holdfast.core.values import AccountId, Amount, ProviderId


class Register(msgspec.Struct, frozen=True, gc=False):
    """Take a provider in, or what it says of itself anew. Whoever submits this has verified its signature (PRV-003)."""

    public: bytes
    name: str
    account: AccountId
    capabilities: bytes
    region: str
    price: int
    slots: int
    attested_until_ms: int


class Stake(msgspec.Struct, frozen=True, gc=False):
    """Put money of the provider's account at stake; `request` names this wish, so that asking again does it once."""

    id: ProviderId
    amount: Amount
    request: bytes


class Beat(msgspec.Struct, frozen=True, gc=False):
    """A heartbeat whose signature was verified."""

    id: ProviderId
    slots: int


class ProviderRegistered(Event, frozen=True, tag=70):
    """A provider is known, or known anew."""

    id: ProviderId
    public: bytes
    name: str
    account: AccountId
    capabilities: bytes
    region: str
    price: int
    slots: int
    attested_until_ms: int
    registered_ms: int


class ProviderStaked(Event, frozen=True, tag=71):
    """A provider has more to lose."""

    id: ProviderId
    amount: Amount
    request: bytes


class HeartbeatTaken(Event, frozen=True, tag=72):
    """A provider was there at this time."""

    id: ProviderId
    at_ms: int
    slots: int


class ProviderMoved(Event, frozen=True, tag=73):
    """A provider's status changed (PRV-001)."""

    id: ProviderId
    before: ProviderStatus
    after: ProviderStatus
    reason: str
    actor: str
    height: int


def stake_key(asked: Stake | ProviderStaked) -> bytes:
    return b"a" + asked.request
