"""Events as clients see them (EVT-001): under which name, with which fields, and who is shown which.

Every event has a public name of its own (`Event.public_name`). Here stand the few that are internal, that have a second
name, or whose name depends on their content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast.api.node_access import READERS, Principal
from holdfast.api.rpc.params import to_json
from holdfast.core import state_machine
from holdfast.core.base.clock_record import TimeRecorded
from holdfast.core.base.did_you_mean import did_you_mean
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event, OwnershipTaken
from holdfast.core.base.privileged import PrivilegedActRecorded
from holdfast.core.base.values import AccountId
from holdfast.core.chain import messages as chain
from holdfast.core.evidence import messages as evidence
from holdfast.core.key.messages import KeyCreated, KeyRevoked, KeyRotated
from holdfast.core.lease import messages as lease
from holdfast.core.lease.model import LeaseStatus
from holdfast.core.match.messages import RequestersCounted
from holdfast.core.policy_change.messages import PolicyAdopted
from holdfast.core.proof import messages as proof
from holdfast.core.proof.messages import VoteCast
from holdfast.core.provider import messages as provider
from holdfast.core.queue import messages as queue
from holdfast.core.queue import purge, replicas, requeue
from holdfast.core.retention import messages as retain
from holdfast.engine.event_stream import StoredEvent

INTERNAL_EVENTS: Final[frozenset[type[Event]]] = frozenset(
    {
        OwnershipTaken,
        PrivilegedActRecorded,
        TimeRecorded,
        PolicyAdopted,
        KeyCreated,
        KeyRotated,
        KeyRevoked,
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
}
"""The field that names a job, for events that belong to the job's caller."""


class EventFilter(msgspec.Struct, frozen=True):
    """What one subscriber is shown."""

    topics: frozenset[str] | None = None
    """None is all."""
    is_all: bool = False
    """Also events that name no account, or another one."""
    account: AccountId | None = None
    is_public: bool = False
    """The same, except for internal events."""

    @property
    def is_own_only(self) -> bool:
        """Whether the caller of an event's job must be known."""
        return self.account is not None and not self.is_all

    def topic(self, event: Event, caller: AccountId | None = None) -> str | None:
        """The name under which the subscriber sees the event, None where it does not see it.

        `caller` is the caller of the job that the event is about.
        """
        name = public_name(type(event), event)
        if self.topics is not None and name not in self.topics:
            name = ALIASES.get(type(event), "")
            if name not in self.topics:
                return None
        is_shown = (
            self.is_all or (self.is_public and type(event) not in INTERNAL_EVENTS) or self._concerns(event, caller)
        )
        return name if is_shown else None

    def _concerns(self, event: Event, caller: AccountId | None) -> bool:
        if self.account is None:
            return False
        return caller == self.account or any(getattr(event, name, None) == self.account for name in ACCOUNT_FIELDS)


def public_name(kind: type[Event], event: Event | None = None) -> str:
    """The public name of a kind of event; where it depends on the event's content, the event must be given."""
    if event is not None and (names := NAMES_BY_STATUS.get(kind)) is not None:
        return names.get(event.status) or kind.public_name  # type: ignore[attr-defined]
    return kind.public_name


def event_names() -> list[str]:
    """All names that can be subscribed to."""
    names = {public_name(kind) for kind in state_machine.EVENTS}
    for kind in state_machine.EVENTS:
        names.update(NAMES_BY_STATUS.get(kind, {}).values())
        names.update([ALIASES[kind]] if kind in ALIASES else [])
    return sorted(names)


def event_json(stored: StoredEvent, topic: str) -> dict[str, Any]:
    """An event as JSON has it, under one of its names."""
    event = stored.event
    renamed: Mapping[str, str] = PUBLIC_FIELDS.get(topic, {})
    shown = [name for name in event.__struct_fields__ if name not in HIDDEN_FIELDS]
    fields = {renamed.get(name, name): to_json(getattr(event, name)) for name in shown}
    return {"number": stored.number, "time_ms": stored.time_ms, "type": topic, "event": fields}


def event_filter(principal: Principal, topics: Iterable[str] | None, *, is_public: bool) -> EventFilter | Refused:
    """What this principal may see of these topics: operators and auditors everything, a requester its own events."""
    wanted = None if topics is None else frozenset(topics)
    known = event_names()
    if wanted is not None and (unknown := sorted(wanted - set(known))):
        hint = did_you_mean(unknown[0], known, otherwise=f"there are {', '.join(known)}")
        return Refused("EVT-001", f"types: no event {unknown[0]!r:.80}", hint, "InvalidParams")
    return EventFilter(wanted, principal.role in READERS, principal.account, is_public)
