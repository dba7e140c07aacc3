"""Events as the outside sees them (EVT-001): under which name, with which fields, and who is shown which.

Every event has either a public name here or a place among those that are no business of the public, so that a new one
cannot be forgotten: a test holds both tables against the law's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast.core import law
from holdfast.core.act import ActDone
from holdfast.core.adopt import PolicyAdopted
from holdfast.core.chain import acts as chain
from holdfast.core.clock import TimeNoted
from holdfast.core.escrow import acts as money
from holdfast.core.event import Event, OwnershipTaken
from holdfast.core.evidence import letters, marks, sessions
from holdfast.core.key import KeyMade, KeyRevoked, KeyRotated
from holdfast.core.lease import acts as lease
from holdfast.core.lease.record import LeaseStatus
from holdfast.core.match.fairness import RequestersCounted
from holdfast.core.proof import acts as proof
from holdfast.core.proof.votes import VoteCast
from holdfast.core.provider import acts as provider
from holdfast.core.queue import acts as queue
from holdfast.core.queue import bury, pauses, replicas, requeue
from holdfast.core.refusal import Refused
from holdfast.core.result import acts as result
from holdfast.core.retention import acts as retain
from holdfast.core.values import AccountId
from holdfast.doors.desk import READERS, Visitor, nearest
from holdfast.doors.shapes import plain
from holdfast.engine.tail import Recorded

TOPICS: Final[dict[type[Event], str]] = {
    queue.JobAdmitted: "jobAdmitted",
    queue.FeeRaised: "feeRaised",
    queue.JobCancelled: "jobCancelled",
    lease.JobAssigned: "jobAssigned",
    lease.JobExpired: "jobExpired",
    lease.JobFailed: "jobFailed",
    proof.ProofAccepted: "jobCompleted",
    requeue.JobRequeued: "jobRequeued",
    replicas.ReplicaAdmitted: "replicaAdmitted",
    replicas.ReplicaEnded: "replicaEnded",
    VoteCast: "voteCast",
    pauses.KindPaused: "kindPaused",
    pauses.KindResumed: "kindResumed",
    lease.LeaseAcked: "leaseAcked",
    lease.LeaseRenewed: "leaseRenewed",
    lease.LeaseClosed: "leaseCancelled",
    lease.CompletionSubmitted: "completionSubmitted",
    proof.CompletionIgnored: "completionIgnored",
    proof.ProofRefused: "proofRefused",
    provider.ProviderRegistered: "providerRegistered",
    provider.ProviderStaked: "providerStaked",
    provider.UnstakeAsked: "unstakeAsked",
    provider.StakeReleased: "stakeReleased",
    provider.ProviderMoved: "providerMoved",
    provider.ProviderDrained: "providerDrained",
    provider.ProviderSlashed: "providerSlashed",
    provider.HealthMoved: "healthMoved",
    provider.HeartbeatMissed: "heartbeatMissed",
    provider.SignerRotated: "signerRotated",
    provider.ListingChanged: "listingChanged",
    result.ResultConsumed: "cap.resultConsumed",
    result.ConsumptionDropped: "cap.consumptionDropped",
    retain.HotDropped: "cap.hotDropped",
    retain.WarmDropped: "cap.warmDropped",
    retain.Vacuumed: "cap.resultsVacuumed",
    chain.BlockSealed: "blockSealed",
    chain.BlockUndone: "blockUndone",
    chain.Reincluded: "reincluded",
    chain.BlocksFinal: "blocksFinal",
    money.Finalized: "Finalized",
    money.Minted: "Minted",
    money.Reserved: "Reserved",
    money.Charged: "Charged",
    money.Refunded: "Refunded",
    money.Undone: "Undone",
}
"""Public names: those of the sources, and in their manner what else happens to jobs, providers, results and blocks.
Postings go by the names of their types."""

INNER: Final[frozenset[type[Event]]] = frozenset(
    {
        OwnershipTaken,
        ActDone,
        TimeNoted,
        PolicyAdopted,
        KeyMade,
        KeyRotated,
        KeyRevoked,
        provider.HeartbeatTaken,
        provider.HeartbeatsForgiven,
        RequestersCounted,
        bury.JobsBuried,
        chain.Released,
        retain.BytesGone,
        retain.AuditEnded,
        marks.EvidenceTaken,
        marks.SessionSealed,
        letters.EvidenceBuried,
        letters.LetterReleased,
        sessions.EvidencePruned,
        sessions.ChannelAssigned,
    }
)
"""The node's own housekeeping and what is between it and one visitor. By the name of its type, for operators, auditors
and whomever it names; never for everybody, also where events are public."""

ALSO: Final[dict[type[Event], str]] = {proof.ProofAccepted: "cap.jobCompleted"}
"""Names besides, for who asks for them by name: one event, told in the words of another source."""

BY_STATUS: Final[dict[type[Event], dict[str, str]]] = {lease.LeaseClosed: {LeaseStatus.EXPIRED: "leaseExpired"}}
"""Events whose name depends on what became of their subject."""

_JOB, _LEASE, _PROVIDER = {"id": "jobId"}, {"id": "leaseId", "job_id": "jobId"}, {"id": "providerId"}
_LEASED: Final = {"job_id": "jobId", "provider_id": "providerId", "lease_id": "leaseId", "t_deadline_ms": "deadline"}
_PROVIDERS: Final = (
    *("providerRegistered", "providerStaked", "providerMoved", "providerDrained", "providerSlashed"),
    *("unstakeAsked", "stakeReleased", "healthMoved", "heartbeatMissed", "signerRotated"),
)
_JOBS: Final = ("jobAdmitted", "jobExpired", "jobFailed", "jobCancelled", "jobRequeued", "feeRaised")
RENAMED: Final[dict[str, dict[str, str]]] = {
    "jobAssigned": _LEASED,
    "jobCompleted": _LEASED | {"task_id": "jobId", "height": "height_resolved"},
    "cap.jobCompleted": {"digest": "result_digest", "size": "result_size", "height": "height_resolved"},
    "leaseRenewed": _LEASE | {"t_deadline_ms": "deadline"},
    **dict.fromkeys(("leaseAcked", "leaseCancelled", "leaseExpired"), _LEASE),
    **dict.fromkeys(("completionSubmitted", "completionIgnored", "proofRefused", "voteCast"), _LEASED),
    **dict.fromkeys((*_JOBS, "replicaAdmitted", "replicaEnded"), _JOB),
    **dict.fromkeys(_PROVIDERS, _PROVIDER),
}
"""Fields that have a public name of their own, too, by the event's public name."""
HIDDEN: Final = frozenset({"secret", "output"})
"""Fields that leave the node under no circumstances: secrets, not even as a hash, and result bytes (RPC-002)."""
ACCOUNTS: Final = ("account", "owner", "caller", "payee")
"""Fields that name whose event it is."""
JOB_OF: Final[dict[type[Event], str]] = {
    lease.JobAssigned: "job_id",
    lease.LeaseRenewed: "job_id",
    lease.LeaseClosed: "job_id",
    proof.ProofRefused: "task_id",
    VoteCast: "parent",
    replicas.ReplicaAdmitted: "parent",
    replicas.ReplicaEnded: "id",
    lease.JobExpired: "id",
    lease.JobFailed: "id",
    queue.JobCancelled: "id",
    queue.FeeRaised: "id",
    requeue.JobRequeued: "id",
}
"""Events that are those of the caller of a job which this field names."""


class Wanted(msgspec.Struct, frozen=True):
    """What one subscriber is shown."""

    topics: frozenset[str] | None = None
    """None is all."""
    is_all: bool = False
    """Also what names no account, or another one."""
    account: AccountId | None = None
    is_public: bool = False
    """The same, but for what is no business of the public."""

    @property
    def is_own_alone(self) -> bool:
        """Whether it matters whose job an event is about."""
        return self.account is not None and not self.is_all

    def topic(self, event: Event, caller: AccountId | None = None) -> str | None:
        """The name under which this one sees the event, which is of this caller's job; None where it does not."""
        asked = self.topics
        name = topic_of(type(event), event)
        if asked is not None and name not in asked:
            name = ALSO.get(type(event), "")
            if name not in asked:
                return None
        is_shown = self.is_all or (self.is_public and type(event) not in INNER) or self._concerns(event, caller)
        return name if is_shown else None

    def _concerns(self, event: Event, caller: AccountId | None) -> bool:
        if self.account is None:
            return False
        return caller == self.account or any(getattr(event, name, None) == self.account for name in ACCOUNTS)


def topic_of(kind: type[Event], event: Event | None = None) -> str:
    """The public name of an event; of one whose name depends on it, it must be given."""
    if event is not None and (names := BY_STATUS.get(kind)) is not None:
        return names.get(event.status) or TOPICS[kind]  # type: ignore[attr-defined]
    return TOPICS.get(kind) or kind.__name__


def names() -> list[str]:
    """All names that can be asked for."""
    found = {topic_of(kind) for kind in law.EVENTS}
    for kind in law.EVENTS:
        found.update(BY_STATUS.get(kind, {}).values())
        found.update([ALSO[kind]] if kind in ALSO else [])
    return sorted(found)


def shown(recorded: Recorded, topic: str) -> dict[str, Any]:
    """An event as JSON has it."""
    event = recorded.event
    renamed: Mapping[str, str] = RENAMED.get(topic, {})
    told = [name for name in event.__struct_fields__ if name not in HIDDEN]
    fields = {renamed.get(name, name): plain(getattr(event, name)) for name in told}
    return {"number": recorded.number, "time_ms": recorded.time_ms, "type": topic, "event": fields}


def wanted(visitor: Visitor, topics: Iterable[str] | None, *, is_public: bool) -> Wanted | Refused:
    """What this visitor may see of these topics: operators and auditors all, a requester what is its own."""
    asked = None if topics is None else frozenset(topics)
    known = names()
    if asked is not None and (strange := sorted(asked - set(known))):
        return Refused("EVT-001", f"types: no event {strange[0]!r:.80}", _hint(strange[0], known), "InvalidParams")
    return Wanted(asked, visitor.role in READERS, visitor.account, is_public)


def _hint(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    return close if close.startswith("did") else f"there are {', '.join(known)}"
