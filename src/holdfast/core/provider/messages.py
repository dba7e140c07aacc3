"""Commands and events of providers."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import Command, Event
from holdfast.core.base.fsm import next_state
from holdfast.core.base.values import AccountId, Amount, ProviderId
from holdfast.core.provider.model import (
    PROVIDER_TRANSITIONS,
    SYSTEM_ACTOR,
    HasProviders,
    Provider,
    ProviderStatus,
    ProviderTransition,
)


class Register(Command, frozen=True):
    """Register a provider, or update its declaration. Its signature was verified before (PRV-003)."""

    public: bytes
    name: str
    account: AccountId
    capabilities: bytes
    region: str
    price: int
    slots: int
    attested_until_ms: int
    attestor: str = ""
    """Who checked the attestation, before the command was submitted (PRV-001)."""
    versions: str = ""
    prices: bytes = b""
    """Canonical map from model to its price, where it is not `price`."""
    invitation: bytes = b""
    """The hash of the operator's invitation; empty where it shows none (SEC-002)."""
    invitation_expires_ms: int = 0


class InviteProvider(Command, frozen=True):
    """Invite a provider: whoever shows this token first gets a place."""

    invitation: bytes
    expires_ms: int
    by: str


class Stake(Command, frozen=True):
    """Stake money of the provider's account; `request` identifies the request, so that a retry stakes once."""

    id: ProviderId
    amount: Amount
    request: bytes


class Heartbeat(Command, frozen=True):
    """A heartbeat with a verified signature: how many leases it accepts, how many it works on, its versions."""

    id: ProviderId
    slots: int
    load: int = 0
    versions: str = ""
    support: bytes = b""
    """Digest of its current capabilities, which must be the registered ones; empty where it sends none."""


class Unstake(Command, frozen=True):
    """Withdraw money from the stake, after its lock; `request` identifies the request."""

    id: ProviderId
    amount: Amount
    request: bytes
    by: str


class ChangeStatus(Command, frozen=True):
    """Jail, unjail, suspend, recover or retire a provider, on an operator's or its own request."""

    id: ProviderId
    transition: ProviderTransition
    by: str
    reason: str = ""
    blocks: int = 0
    """How long to jail it for; 0: until it is unjailed."""


class Drain(Command, frozen=True):
    """Give a provider no new work, or give it work again."""

    id: ProviderId
    is_draining: bool
    by: str
    reason: str = ""


class RotateSigner(Command, frozen=True):
    """Another key for a provider. The signatures of both keys were verified before."""

    id: ProviderId
    public: bytes
    by: str


class SetListing(Command, frozen=True):
    """Allow or deny a provider or a region; an empty verdict removes the entry."""

    subject: str
    """`provider:ID` in hexadecimal digits, or `region:NAME`."""
    verdict: str
    by: str
    reason: str = ""


class MaintainProviders(Command, frozen=True):
    """Check the providers that are due: missed heartbeats, low health, ended jail terms, unlocked stake."""

    limit: int = 256


class ProviderRegistered(Event, frozen=True, tag=70):
    """A provider was registered, or changed its declaration."""

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
    prices: bytes = b""


class ProviderInvited(Event, frozen=True, tag=113):
    """An operator has made an invitation; only its hash is stored."""

    invitation: bytes
    expires_ms: int
    actor: str


class InvitationUsed(Event, frozen=True, tag=114):
    """A provider has used an invitation."""

    invitation: bytes
    id: ProviderId


class ProviderStaked(Event, frozen=True, tag=71):
    """A provider's stake was raised."""

    id: ProviderId
    amount: Amount
    request: bytes


class HeartbeatReceived(Event, frozen=True, tag=72):
    """A provider sent a heartbeat."""

    id: ProviderId
    at_ms: int
    slots: int
    load: int = 0
    versions: str = ""


class ProviderStatusChanged(Event, frozen=True, tag=73):
    """A provider's status changed (PRV-001)."""

    id: ProviderId
    before: ProviderStatus
    after: ProviderStatus
    reason: str
    actor: str
    height: int
    until: int = 0
    """For a jailed provider: the height at which its jail term ends; 0: never."""


def status_change(
    state: HasProviders,
    provider: Provider,
    transition: ProviderTransition,
    reason: str,
    by: str = SYSTEM_ACTOR,
    until: int = 0,
) -> ProviderStatusChanged:
    """The transition as an event; the caller has checked that the table allows it."""
    after = next_state(PROVIDER_TRANSITIONS, provider.status, transition)
    assert after is not None, f"{provider.status} does not allow {transition}"
    return ProviderStatusChanged(
        id=provider.id,
        before=provider.status,
        after=after,
        reason=reason,
        actor=by,
        height=state.open_height,
        until=until,
    )


class HealthChanged(Event, frozen=True, tag=74):
    """A provider's health changed (RTY-003).

    It carries the difference, not the new value: several leases of one provider can end in one decision, and each
    counts. Where the failures in a row reach a multiple of `failures_max`, and no cooldown is running, a cooldown of
    `cooldown_ms` begins, doubled for each earlier one, up to `cap_ms`.
    """

    id: ProviderId
    by_ppm: int
    reason: str
    at_ms: int
    failures_max: int = 0
    cooldown_ms: int = 0
    cap_ms: int = 0
    resets_cooldowns: bool = False
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


class UnstakeRequested(Event, frozen=True, tag=76):
    """A part of a stake counts no more and is released after its lock."""

    id: ProviderId
    amount: Amount
    request: bytes
    unstake_height: int
    unstake_ms: int
    actor: str


class StakeReleased(Event, frozen=True, tag=77):
    """Locked stake went back to the provider's account."""

    id: ProviderId
    amount: Amount


class ProviderDrained(Event, frozen=True, tag=78):
    """A provider's draining was switched on or off."""

    id: ProviderId
    before: bool
    after: bool
    reason: str
    actor: str
    height: int


class SignerRotated(Event, frozen=True, tag=79):
    """A provider signs with another key from now on; its id stays (PRV-003)."""

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


class OutageCredited(Event, frozen=True, tag=111):
    """The node was down: heartbeats that were fresh when it went down are moved by the outage (LEA-008)."""

    term: int
    outage_ms: int
    at_ms: int
    stale_ms: int


class HeartbeatMissed(Event, frozen=True, tag=112):
    """A heartbeat is missing; its provider loses health (PRV-002)."""

    id: ProviderId
    missed: int
    """In a row, this one included."""
    by_ppm: int
    at_ms: int


def slash_tx_data(event: ProviderSlashed) -> bytes:
    """The content of a slash's leaf, besides its subject (CHN-001)."""
    return canonical([event.reason, event.penalty])


def stake_key(message: Stake | ProviderStaked) -> bytes:
    return b"a" + message.request


def unstake_key(message: Unstake | UnstakeRequested) -> bytes:
    return b"u" + message.request


def time_independent_unstake(requested: UnstakeRequested) -> UnstakeRequested:
    """The request without its times: a repeat is recognised whenever it comes, and its lock does not move."""
    return replace(requested, unstake_height=0, unstake_ms=0, actor="")
