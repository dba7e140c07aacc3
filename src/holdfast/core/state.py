"""The state in memory, and the list of its parts with their stored names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast.core.base.event import Event, OwnershipTaken
from holdfast.core.base.values import (
    AccountId,
    Digest,
    EventNo,
    Height,
    KeyId,
    LeaseId,
    ProviderId,
    ReservationId,
    TaskId,
)
from holdfast.core.blob.model import BlobContent, LiveBlob, Unconfirmed
from holdfast.core.chain.model import Chain, FinalBlock, genesis_chain
from holdfast.core.escrow.model import Account, Ledger, Reservation, Transfer
from holdfast.core.evidence.model import ChannelSessions, DeadLetter, SessionWatermark
from holdfast.core.index.touch import Touched
from holdfast.core.index.unique_ids import Claims
from holdfast.core.job.model import Job
from holdfast.core.job.quorum import Quorum
from holdfast.core.key.model import Key
from holdfast.core.lease.model import Lease, Leases
from holdfast.core.match.provider_index import ProviderIndex
from holdfast.core.match.requester_window import RequesterWindow
from holdfast.core.policy import Policy
from holdfast.core.provider.model import Provider
from holdfast.core.provider.provider_timers import ProviderTimers
from holdfast.core.queue.model import InputClaim, InvalidInputs, Queue
from holdfast.core.queue.pauses import Paused
from holdfast.core.queue.quota import Quota
from holdfast.core.result.model import Consumption, Result
from holdfast.core.retention.model import PassProgress, RecentDigests
from holdfast.core.schedule.model import Schedule, Schedules
from holdfast.core.tables import TABLES, discard_rows


class Observer(Protocol):
    """Sees each run of events just before it is applied, while memory still has their subjects."""

    def observe(self, state: State, events: Sequence[Event]) -> None: ...


class State(msgspec.Struct):
    """What the domains decide against. Only the owner, the chain and what `PARTS` lists are part of the digest."""

    policy: Policy
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    last_event: EventNo = EventNo(0)
    owner: OwnershipTaken | None = None
    """The current owner of the journal."""
    claims: Claims = msgspec.field(default_factory=Claims)
    touched: Touched = msgspec.field(default_factory=lambda: {table: {} for table in TABLES})
    """Records changed since the last batch was sealed, by table and key: what the projection must write."""
    keys: dict[KeyId, Key] = {}
    queue: Queue = msgspec.field(default_factory=Queue)
    chain: Chain = None  # type: ignore[assignment]
    providers: dict[ProviderId, Provider] = {}
    leases: Leases = msgspec.field(default_factory=Leases)
    schedules: Schedules = msgspec.field(default_factory=Schedules)
    submissions: dict[LeaseId, bytes] = {}
    """Proof envelopes that wait for their verdict."""
    assignments: int = 0
    """The number of leases ever granted."""
    results: dict[TaskId, Result] = {}
    """Those that a reorg could still unlink."""
    result_counts: dict[tuple[str, str], int] = {}
    """Metrics: how often each outcome of results and completions happened, by kind."""
    final_blocks: dict[Height, FinalBlock] = {}
    """Final blocks that are still in memory: the tables may not hold them yet (ENG-004)."""
    attempts: dict[TaskId, list[Lease]] = {}
    """The ended leases of jobs in memory, in order."""
    evicted_as_of: EventNo = EventNo(0)
    """What left memory is in the tables, once they are complete up to this event (ENG-004)."""
    consumptions: dict[TaskId, Consumption] = {}
    """Those that a reorg could still roll back."""
    retention_progress: dict[str, PassProgress] = {}
    """The position of each retention pass, by its name (RET-002)."""
    skipped_hot: dict[EventNo, str] = {}
    skipped_warm: dict[EventNo, str] = {}
    """Results that a pass skipped, and why."""
    hot_deletes_pending: dict[EventNo, EventNo] = {}
    warm_deletes_pending: dict[Digest, EventNo] = {}
    """Bytes that may still have to be deleted, in the store and on the disk."""
    recent_digests: RecentDigests = msgspec.field(default_factory=RecentDigests)
    """The digests that were accepted last; not stored."""
    blob_progress: dict[str, int] = {}
    """How far results are in blobs (BLB-002)."""
    blob_heights: dict[Height, list[LiveBlob]] = {}
    """Blobs whose bytes this node has, by the height of their block."""
    blob_pool: list[BlobContent] = []
    """Blobs of orphaned blocks: the next blocks have them again."""
    validators: dict[bytes, Height] = {}
    """Keys that may propose and archive, and since which height (NTC-002)."""
    validators_ended: dict[bytes, Height] = {}
    """Those that have left, and the first height that they do not count at."""
    proposer_successors: dict[bytes, list[bytes]] = {}
    """Who archives what a former owner has proposed (NTC-005)."""
    notices_unconfirmed: dict[bytes, Unconfirmed] = {}
    """Notices that not every validator has, by height and index (NTC-004)."""
    watermarks: dict[str, SessionWatermark] = {}
    dead_letters: dict[EventNo, DeadLetter] = {}
    """Dead letters that wait for an operator (EVD-007)."""
    channel_owners: dict[str, str] = {}
    """The certificate name that a v0.1 sender's channel requires (EVD-009)."""
    channel_sessions: dict[str, ChannelSessions] = {}
    """Sessions by channel; an index."""
    dead_letters_waiting: dict[str, int] = {}
    """The number of waiting dead letters by channel; an index."""
    quotas: dict[ProviderId, Quota] = {}
    """Units used in the latest epoch (QUO-001)."""
    input_claims: dict[TaskId, InputClaim] = {}
    """Live jobs whose input a provider called invalid, in the order in which they are due (JOB-012)."""
    invalid_inputs: dict[AccountId, InvalidInputs] = {}
    """How many jobs of each requester had invalid inputs lately (JOB-012)."""
    class_denials: dict[bytes, int] = {}
    """Until when a provider is skipped for a class of jobs, by both (LEA-006)."""
    paused: dict[str, Paused] = {}
    """Kinds of jobs that are not assigned."""
    requeued: dict[TaskId, list[EventNo]] = {}
    """The requeueing events of jobs with an earlier refund that a reorg could still move (RTY-001)."""
    quorums: dict[TaskId, Quorum] = {}
    """The votes of jobs with replicas, while they live or their money can still move (LEA-009)."""
    policy_bytes: dict[int, bytes] = {}
    """The adopted policy, packed, under 0, and its event under 1; empty where the journal adopted none (PRI-003)."""
    listings: dict[str, str] = {}
    """What the operator allows and denies: providers and regions (MAT-002)."""
    outage_credited_term: dict[int, int] = {}
    """Under 0: the term whose outage was last credited to providers (LEA-008)."""
    provider_timers: ProviderTimers = msgspec.field(default_factory=ProviderTimers)
    """When each provider must be checked; an index."""
    requester_windows: dict[AccountId, RequesterWindow] = {}
    """How many jobs of each requester were assigned lately, where policy limits it (MAT-005)."""
    changed_providers: set[ProviderId] = set()
    """Providers that changed since `provider_index` was last refreshed."""
    provider_index: ProviderIndex = msgspec.field(default_factory=ProviderIndex)
    """Which providers are available; an index that fills itself."""
    observer: Observer | None = None
    """Who counts what happens (OBS-001); no decision depends on it."""

    def __post_init__(self) -> None:
        self.queue.jobs.share(self.ledger.reservations)
        if self.chain is None:
            self.chain = genesis_chain(self.policy)

    def record_nothing(self) -> None:
        """For a fold that writes no rows and decides nothing."""
        self.touched, self.claims.is_recording = discard_rows(), False

    @property
    def open_height(self) -> Height:
        """CHN-002: the block that everything decided now belongs to."""
        return self.chain.head.height + 1  # type: ignore[return-value]  # read ten times for each job

    @property
    def beacon(self) -> tuple[Height, bytes]:
        """MAT-001: height and beacon of the head."""
        return self.chain.head.height, self.chain.head.beacon


class StatePart(msgspec.Struct, frozen=True):
    """A part of the state. All parts that `PARTS` lists are in the digest and in snapshots (ENG-003)."""

    stored: str
    """Its name in digests and snapshots: a literal that no renaming in Python changes."""
    path: str
    """Where it is in `State`."""
    type: Any
    """Its type in a snapshot. An unused part is empty and adds nothing to the digest."""
    key: str = ""
    """For a mapping of records that is stored as a list: the record's field that is its key."""


PARTS: Final[tuple[StatePart, ...]] = (
    StatePart("accounts", "ledger.accounts", list[Account], "owner"),
    StatePart("reservations", "ledger.reservations", list[Reservation], "id"),
    StatePart("settled_by_height", "ledger.settled_by_height", dict[Height, list[ReservationId]]),
    StatePart("finalized_height", "ledger.finalized_height", Height),
    StatePart("reserved_total", "ledger.reserved_total", int),
    StatePart("charged_total", "ledger.charged_total", int),
    StatePart("refunded_total", "ledger.refunded_total", int),
    StatePart("keys", "keys", list[Key], "id"),
    StatePart("jobs", "queue.jobs", list[Job], "id"),
    StatePart("providers", "providers", list[Provider], "id"),
    StatePart("leases", "leases.by_id", list[Lease], "id"),
    StatePart("submissions", "submissions", dict[LeaseId, bytes]),
    StatePart("assignments", "assignments", int),
    StatePart("results", "results", list[Result], "task_id"),
    StatePart("watermarks", "watermarks", list[SessionWatermark], "id"),
    StatePart("consumptions", "consumptions", dict[TaskId, Consumption]),
    StatePart("final_blocks", "final_blocks", dict[Height, FinalBlock]),
    StatePart("final_reservations", "ledger.final_reservations", dict[EventNo, list[ReservationId]]),
    StatePart("attempts", "attempts", dict[TaskId, list[Lease]]),
    StatePart("evicted_as_of", "evicted_as_of", EventNo),
    StatePart("quotas", "quotas", dict[ProviderId, Quota]),
    StatePart("class_denials", "class_denials", dict[bytes, int]),
    StatePart("paused", "paused", dict[str, Paused]),
    StatePart("requeued", "requeued", dict[TaskId, list[EventNo]]),
    StatePart("policy_bytes", "policy_bytes", dict[int, bytes]),
    StatePart("dead_letters", "dead_letters", dict[EventNo, DeadLetter]),
    StatePart("requester_windows", "requester_windows", dict[AccountId, RequesterWindow]),
    StatePart("listings", "listings", dict[str, str]),
    StatePart("outage_credited_term", "outage_credited_term", dict[int, int]),
    StatePart("channel_owners", "channel_owners", dict[str, str]),
    StatePart("retention_progress", "retention_progress", dict[str, PassProgress]),
    StatePart("skipped_hot", "skipped_hot", dict[EventNo, str]),
    StatePart("skipped_warm", "skipped_warm", dict[EventNo, str]),
    StatePart("hot_deletes_pending", "hot_deletes_pending", dict[EventNo, EventNo]),
    StatePart("warm_deletes_pending", "warm_deletes_pending", dict[Digest, EventNo]),
    StatePart("quorums", "quorums", dict[TaskId, Quorum]),
    StatePart("withdrawals", "ledger.withdrawals", list[Transfer], "reference"),
    StatePart("input_claims", "input_claims", dict[TaskId, InputClaim]),
    StatePart("invalid_inputs", "invalid_inputs", dict[AccountId, InvalidInputs]),
    StatePart("blob_progress", "blob_progress", dict[str, int]),
    StatePart("blob_heights", "blob_heights", dict[Height, list[LiveBlob]]),
    StatePart("blob_pool", "blob_pool", list[BlobContent]),
    StatePart("validators", "validators", dict[bytes, Height]),
    StatePart("validators_ended", "validators_ended", dict[bytes, Height]),
    StatePart("proposer_successors", "proposer_successors", dict[bytes, list[bytes]]),
    StatePart("notices_unconfirmed", "notices_unconfirmed", dict[bytes, Unconfirmed]),
    StatePart("schedules", "schedules.by_id", list[Schedule], "id"),
)
"""Owner and chain are stored beside them: both are one record."""
