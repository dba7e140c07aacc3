"""What can be asked about providers and what then happened: the station's commands and events."""

from __future__ import annotations

import msgspec

from holdfast.core.canon import canonical
from holdfast.core.event import Event
from holdfast.core.provider.record import ProviderAct, ProviderStatus
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
    attestor: str = ""
    """Whoever submits this has had the attestation checked by this one (PRV-001)."""
    versions: str = ""


class Stake(msgspec.Struct, frozen=True, gc=False):
    """Put money of the provider's account at stake; `request` names this wish, so that asking again does it once."""

    id: ProviderId
    amount: Amount
    request: bytes


class Beat(msgspec.Struct, frozen=True, gc=False):
    """A heartbeat whose signature was verified: how many leases it takes, how many it works on, what it runs."""

    id: ProviderId
    slots: int
    load: int = 0
    versions: str = ""
    support: bytes = b""
    """Digest of the capabilities it has now, where it says so: they must be the registered ones."""


class Unstake(msgspec.Struct, frozen=True, gc=False):
    """Take money back from the stake, once its lock is over; `request` names this wish."""

    id: ProviderId
    amount: Amount
    request: bytes
    by: str


class MoveProvider(msgspec.Struct, frozen=True, gc=False):
    """Jail, let out, suspend, recover or retire a provider by hand."""

    id: ProviderId
    act: ProviderAct
    by: str
    reason: str = ""
    blocks: int = 0
    """How long to jail it for; 0: until somebody lets it out."""


class Drain(msgspec.Struct, frozen=True, gc=False):
    """Give a provider no new work, or give it work again."""

    id: ProviderId
    is_draining: bool
    by: str
    reason: str = ""


class RotateSigner(msgspec.Struct, frozen=True, gc=False):
    """Another key for a provider. Whoever submits this has verified that the old and the new one signed it."""

    id: ProviderId
    public: bytes
    by: str


class List(msgspec.Struct, frozen=True, gc=False):
    """Allow or deny a provider or a region, or take either back with an empty verdict."""

    subject: str
    """`provider:ID` in hexadecimal digits, or `region:NAME`."""
    verdict: str
    by: str
    reason: str = ""


class Tend(msgspec.Struct, frozen=True, gc=False):
    """Look after providers that are due: missed heartbeats, poor health, jail that is over, stake that is free."""

    limit: int = 256


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
    attestor: str = ""
    versions: str = ""


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
    load: int = 0
    versions: str = ""


class ProviderMoved(Event, frozen=True, tag=73):
    """A provider's status changed (PRV-001)."""

    id: ProviderId
    before: ProviderStatus
    after: ProviderStatus
    reason: str
    actor: str
    height: int
    until: int = 0
    """For one that is jailed: the height at which it is let out by itself; 0: never."""


class HealthMoved(Event, frozen=True, tag=74):
    """A provider did well or badly (RTY-003).

    It says by how much, not to what: several leases of one provider can end in one decision, and each counts. After
    the failure it follows from, the failures in a row are counted; where they are a multiple of `failures_max` and
    the provider does not cool down yet, it does, for `cooldown_ms`, doubled for each time before, up to `cap_ms`.
    """

    id: ProviderId
    by_ppm: int
    reason: str
    at_ms: int
    failures_max: int = 0
    cooldown_ms: int = 0
    cap_ms: int = 0
    is_calmed: bool = False
    """The next cooldown is a first one again."""


class ProviderSlashed(Event, frozen=True, tag=75):
    """A provider lost a part of its stake, in the open block (PRV-004)."""

    id: ProviderId
    reason: str
    penalty: Amount
    severity: str
    jailed_until: int
    """0 where it is not jailed for it."""
    at_ms: int
    height: int
    actor: str = "holdfast"


class UnstakeAsked(Event, frozen=True, tag=76):
    """A part of a stake counts no more and is given back when its lock is over."""

    id: ProviderId
    amount: Amount
    request: bytes
    unstake_height: int
    unstake_ms: int
    actor: str


class StakeReleased(Event, frozen=True, tag=77):
    """What was locked is its account's again."""

    id: ProviderId
    amount: Amount


class ProviderDrained(Event, frozen=True, tag=78):
    """Whether a provider is given new work has changed."""

    id: ProviderId
    before: bool
    after: bool
    reason: str
    actor: str
    height: int


class SignerRotated(Event, frozen=True, tag=79):
    """A provider signs with another key from now on; it is the same provider (PRV-003)."""

    id: ProviderId
    before: bytes
    after: bytes
    actor: str
    height: int


class ListingChanged(Event, frozen=True, tag=110):
    """The operator's lists changed (MAT-002)."""

    subject: str
    before: str
    after: str
    reason: str
    actor: str
    height: int


class HeartbeatsForgiven(Event, frozen=True, tag=111):
    """The node itself was away: heartbeats that were fresh when it went are as fresh as then (LEA-008)."""

    epoch: int
    outage_ms: int
    at_ms: int
    stale_ms: int


class HeartbeatMissed(Event, frozen=True, tag=112):
    """A heartbeat did not come; its provider is a little less healthy (PRV-002)."""

    id: ProviderId
    missed: int
    """In a row, this one included."""
    by_ppm: int
    at_ms: int


def slash_told(event: ProviderSlashed) -> bytes:
    """What a light client is told of a slash, besides whom it concerns (CHN-001)."""
    return canonical([event.reason, event.penalty])


def stake_key(asked: Stake | ProviderStaked) -> bytes:
    return b"a" + asked.request


def unstake_key(asked: Unstake | UnstakeAsked) -> bytes:
    return b"u" + asked.request


def unstake_wish(asked: Unstake | UnstakeAsked) -> UnstakeAsked:
    """What the request stands for, whenever it is said: its lock ends when it did the first time."""
    return UnstakeAsked(asked.id, asked.amount, asked.request, 0, 0, "")
