"""Events as clients see them (EVT-001): under which name, with which fields, and who is shown which.

Every event has a public name of its own (`Event.public_name`). Here stand the few that are internal, that have a second
name, or whose name depends on their content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast.api.derived_events import DERIVED, ResultEvent
from holdfast.api.node_access import ANONYMOUS, READERS, Principal
from holdfast.api.rpc.params import to_json
from holdfast.api.visibility import UNKNOWN_OWNER, View, view_of
from holdfast.core import state_machine
from holdfast.core.archive import messages as archive
from holdfast.core.base.clock_record import TimeRecorded
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event, OwnershipTaken
from holdfast.core.base.privileged import PrivilegedActRecorded
from holdfast.core.chain import messages as chain
from holdfast.core.escrow.messages import Finalized
from holdfast.core.evidence import messages as evidence
from holdfast.core.key.messages import KeyCapped, KeyCreated, KeyRevoked, KeyRotated, KeySpent
from holdfast.core.lease import messages as lease
from holdfast.core.lease.model import LeaseStatus
from holdfast.core.match.input_claims import InputClaimKept
from holdfast.core.match.messages import RequestersCounted
from holdfast.core.policy_change.messages import PolicyAdopted
from holdfast.core.proof import messages as proof
from holdfast.core.proof.messages import VoteCast
from holdfast.core.provider import messages as provider
from holdfast.core.queue import messages as queue
from holdfast.core.queue import pauses, purge, replicas, requeue
from holdfast.core.result import messages as result
from holdfast.core.retention import messages as retain
from holdfast.engine.event_stream import StoredEvent
from holdfast.engine.queries.jobs import JobOwner
from holdfast.system.did_you_mean import did_you_mean

INTERNAL_EVENTS: Final[frozenset[type[Event]]] = frozenset(
    {
        OwnershipTaken,
        PrivilegedActRecorded,
        TimeRecorded,
        PolicyAdopted,
        KeyCreated,
        KeyRotated,
        KeyRevoked,
        KeySpent,
        KeyCapped,
        provider.HeartbeatReceived,
        provider.OutageCredited,
        RequestersCounted,
        purge.JobsPurged,
        chain.FinalTxsEvicted,
        chain.SettlementsFinalized,
        retain.BytesDeleted,
        retain.AuditEnded,
        evidence.EvidenceStored,
        evidence.SessionSealed,
        evidence.RecordDeadLettered,
        evidence.DeadLetterResolved,
        evidence.EvidencePruned,
        evidence.ChannelAssigned,
    }
)
"""The node's own housekeeping, and what concerns one client alone. Shown to operators, to auditors and to the account
that the event names; never to everybody, even where events are public."""

ALIASES: Final[dict[type[Event], str]] = {proof.ProofAccepted: "cap.jobCompleted"}
"""Second names, shown to those who subscribe to them by name: the same event in the words of another source."""

NAMES_BY_STATUS: Final[dict[type[Event], dict[str, str]]] = {lease.LeaseClosed: {LeaseStatus.EXPIRED: "leaseExpired"}}
"""Events whose name depends on the status that they carry."""

_JOB, _LEASE, _PROVIDER = {"id": "jobId"}, {"id": "leaseId", "job_id": "jobId"}, {"id": "providerId"}
_LEASED: Final = {"job_id": "jobId", "provider_id": "providerId", "lease_id": "leaseId", "t_deadline_ms": "deadline"}
_PROVIDERS: Final = (
    *("providerRegistered", "providerStaked", "providerStatusChanged", "providerDrained", "providerSlashed"),
    *("unstakeRequested", "stakeReleased", "healthChanged", "heartbeatMissed", "signerRotated"),
)
_SCHEDULE: Final = {"id": "scheduleId", "task_id": "jobId"}
_SCHEDULES: Final = (
    *("scheduleCreated", "scheduleFired", "scheduleRefused", "schedulePaused"),
    *("scheduleResumed", "scheduleEnded", "scheduleRemoved"),
)
_JOBS: Final = ("jobAdmitted", "jobExpired", "jobFailed", "jobCancelled", "jobRequeued", "feeRaised")
PUBLIC_FIELDS: Final[dict[str, dict[str, str]]] = {
    "jobAssigned": _LEASED,
    "jobCompleted": _LEASED | {"task_id": "jobId", "height": "height_resolved"},
    "cap.jobCompleted": {"digest": "result_digest", "size": "result_size", "height": "height_resolved"},
    "leaseRenewed": _LEASE | {"t_deadline_ms": "deadline"},
    **dict.fromkeys(("leaseAcked", "leaseCancelled", "leaseExpired"), _LEASE),
    **dict.fromkeys(("completionSubmitted", "completionIgnored", "proofRefused", "voteCast"), _LEASED),
    **dict.fromkeys((*_JOBS, "replicaAdmitted", "replicaEnded"), _JOB),
    **dict.fromkeys(_PROVIDERS, _PROVIDER),
    **dict.fromkeys(_SCHEDULES, _SCHEDULE),
}
"""Fields that are shown under a public name of their own, by the event's public name."""
HIDDEN_FIELDS: Final = frozenset({"secret", "output"})
"""Fields that never leave the node: secrets, not even as a hash, and result bytes (RPC-002)."""
ACCOUNT_FIELDS: Final = ("account", "owner", "caller", "payee")
"""Fields that name the account that an event belongs to."""
JOB_FIELD: Final[dict[type[Event], str]] = {
    lease.JobAssigned: "job_id",
    lease.LeaseRenewed: "job_id",
    lease.LeaseClosed: "job_id",
    proof.ProofRefused: "task_id",
    VoteCast: "parent",
    replicas.ReplicaAdmitted: "parent",
    replicas.ReplicaEnded: "id",
    queue.JobExpired: "id",
    queue.JobFailed: "id",
    queue.JobCancelled: "id",
    queue.FeeRaised: "id",
    requeue.JobRequeued: "id",
    InputClaimKept: "id",
}
"""The field that names a job, for events that belong to the job's caller."""


_CHAIN_EVENTS: Final = (
    *(chain.BlockSealed, chain.RollbackStarted, chain.BlockRolledBack, chain.TransactionsUnlinked),
    *(chain.TransactionsReincluded, chain.RollbackFinished, chain.BlocksFinal, Finalized),
)
BLOCK_EVENTS: Final = frozenset(
    {chain.BlockSealed, chain.BlockRolledBack, chain.BlocksFinal, Finalized}
    | {archive.BlobArchived, archive.BlobsPruned, retain.WarmDropped}
)
"""EVT-002: blocks sealed, rolled back and final, their bytes archived and pruned: every subscriber is shown them."""
_PROVIDER_EVENTS: Final = (
    *(provider.ProviderRegistered, provider.ProviderStaked, provider.ProviderStatusChanged, provider.ProviderSlashed),
    *(provider.UnstakeRequested, provider.StakeReleased, provider.ProviderDrained, provider.SignerRotated),
    *(provider.ListingChanged, provider.HeartbeatMissed, pauses.KindPaused, pauses.KindResumed),
)
_RETENTION_EVENTS: Final = (retain.HotDropped, retain.WarmDropped, retain.Vacuumed)
OPEN_EVENTS: Final = frozenset({*_CHAIN_EVENTS, *_PROVIDER_EVENTS, *_RETENTION_EVENTS})
"""Events about no job, which everybody sees where events are public. Those about money belong to an account."""
CHAIN_FIELDS: Final[dict[type[Event], frozenset[str]]] = {
    queue.JobAdmitted: frozenset({"id", "kind", "height", "expires_height"}),
    lease.JobAssigned: frozenset({"job_id"}),
    lease.LeaseClosed: frozenset({"job_id"}),
    **dict.fromkeys((queue.JobExpired, queue.JobFailed, queue.JobCancelled, requeue.JobRequeued), frozenset({"id"})),
    proof.ProofAccepted: frozenset({"task_id", "kind", "earliest", "height", "expires_at"}),
    result.ResultConsumed: frozenset({"task_id", "kind", "height"}),
    result.ConsumptionDropped: frozenset({"task_id"}),
    **dict.fromkeys(DERIVED, frozenset({"task_id", "height"})),
}
"""JOB-010: what everybody sees of the events of a private job, where events are public: id, kind, state, heights."""
SUBMITTED_FIELDS: Final = frozenset({"digest", "size", "nullifier", "link", "da_commitment"})
"""Not shown to others even of a public job: replicas could copy it before it is in a block. Its leaf has it then."""
PAYEE_FIELDS_HIDDEN: Final = frozenset({"caller", "reasons"})
"""Not shown to the account that is paid, of a job that is not its own."""


class EventFilter(msgspec.Struct, frozen=True):
    """What one subscriber is shown."""

    topics: frozenset[str] | None = None
    """None is all."""
    principal: Principal = ANONYMOUS
    is_public: bool = False
    """Everybody is shown what is public."""

    @property
    def is_all(self) -> bool:
        return self.principal.role in READERS

    def topic(self, event: Event) -> str | None:
        """The name under which the subscriber asks for the event, None where it does not ask for it."""
        name = public_name(type(event), event)
        if self.topics is not None and name not in self.topics:
            name = ALIASES.get(type(event), "")
            if name not in self.topics:
                return None
        return name

    def fields(self, event: Event, owner: JobOwner | None = None) -> frozenset[str] | None:
        """JOB-010: the fields that the subscriber is shown, None where it is not shown the event.

        `owner` is the owner of the job that the event is about.
        """
        kind, own = type(event), self.principal.account
        every = frozenset(kind.__struct_fields__) - HIDDEN_FIELDS
        owner = owner or _owner_in(event)
        view = view_of(self.principal, owner or UNKNOWN_OWNER)
        if view is View.WHOLE:
            return every
        if own is not None and any(getattr(event, name, None) == own for name in ACCOUNT_FIELDS):
            return every if owner is None else every - PAYEE_FIELDS_HIDDEN
        if kind in BLOCK_EVENTS:
            return every
        if not self.is_public:
            return None
        if owner is None or owner is UNKNOWN_OWNER:
            return every if kind in OPEN_EVENTS else CHAIN_FIELDS.get(kind)
        return every - SUBMITTED_FIELDS if view is View.OPEN else CHAIN_FIELDS.get(kind)


def _owner_in(event: Event) -> JobOwner | None:
    """Of events that say it themselves."""
    if isinstance(event, queue.JobAdmitted | proof.ProofAccepted | ResultEvent):
        return JobOwner(event.caller, event.is_public)
    return None


def public_name(kind: type[Event], event: Event | None = None) -> str:
    """The public name of a kind of event; where it depends on the event's content, the event must be given."""
    if event is not None and (names := NAMES_BY_STATUS.get(kind)) is not None:
        return names.get(event.status) or kind.public_name  # type: ignore[attr-defined]
    return kind.public_name


def event_names() -> list[str]:
    """All names that can be subscribed to."""
    names = {public_name(kind) for kind in (*state_machine.EVENTS, *DERIVED)}
    for kind in state_machine.EVENTS:
        names.update(NAMES_BY_STATUS.get(kind, {}).values())
        names.update([ALIASES[kind]] if kind in ALIASES else [])
    return sorted(names)


def event_json(stored: StoredEvent, topic: str, shown: frozenset[str] | None = None) -> dict[str, Any]:
    """An event as JSON has it, under one of its names, with these of its fields; None: with all that can be shown."""
    event = stored.event
    renamed: Mapping[str, str] = PUBLIC_FIELDS.get(topic, {})
    names = [name for name in event.__struct_fields__ if name not in HIDDEN_FIELDS and (shown is None or name in shown)]
    fields = {renamed.get(name, name): to_json(getattr(event, name)) for name in names}
    return {"number": stored.number, "time_ms": stored.time_ms, "type": topic, "event": fields}


def event_filter(principal: Principal, topics: Iterable[str] | None, *, is_public: bool) -> EventFilter | Refused:
    """What this principal may see of these topics: operators and auditors everything, a requester its own events."""
    wanted = None if topics is None else frozenset(topics)
    known = event_names()
    if wanted is not None and (unknown := sorted(wanted - set(known))):
        hint = did_you_mean(unknown[0], known, otherwise=f"there are {', '.join(known)}")
        return Refused("EVT-001", f"types: no event {unknown[0]!r:.80}", hint, "InvalidParams")
    return EventFilter(wanted, principal, is_public)
