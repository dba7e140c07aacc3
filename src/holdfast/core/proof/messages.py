"""Commands and events of proofs: the submission, the verdict, and why a proof was refused."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from holdfast.core.base.event import Command, Event, PayloadRef
from holdfast.core.base.values import AccountId, Amount, Digest, Height, LeaseId, ProviderId, TaskId
from holdfast.core.job.quorum import Payment
from holdfast.core.lease.model import Lease
from holdfast.core.proof.envelope import Envelope


class SubmitCompletion(Command, frozen=True):
    """Submit a result. The caller has stored the output's bytes durably and checked their digest."""

    lease_id: LeaseId
    provider_id: ProviderId
    envelope: Envelope
    is_output_held: bool = True
    """False where the caller found no live lease and stored nothing: it can only be a repeat, or late."""
    record: Lease | None = None
    """The row of the lease, where it is over and may have left memory (RCV-002)."""


class VerifierFault(StrEnum):
    """Why there is no verdict, through no fault of the provider (PRF-002)."""

    NONE = ""
    VERIFIER_FAILED = "VERIFIER_FAILED"
    """It crashed, or exceeded its time or memory, more than once: the job is retried."""
    NO_VERIFIER = "NO_VERIFIER"
    """This node does not have the proof method: the job can never be proved here."""
    METRICS_UNMET = "METRICS_UNMET"
    """The result is proved, but not what the job asked for (PRV-005): unpaid, and retried."""


class RecordVerdict(Command, frozen=True):
    """The verifier's verdict on a submission."""

    lease_id: LeaseId
    is_good: bool
    reasons: str = ""
    output: bytes | None = None
    """The output's bytes where policy keeps them hot, in the store (TIER-001); the verifier has checked them."""
    fault: VerifierFault = VerifierFault.NONE
    """Set where the verifier itself failed: the proof is refused without penalty."""
    da_commitment: Digest | None = None
    """Of an output that is too large to be kept hot (DA-001); the verifier has computed it from the bytes."""
    digest: Digest | None = None
    """The submission that it is about, where it is given together with it: on another one it has no effect."""


class ProofAccepted(Event, frozen=True, tag=90):
    """A proof is in the open block: the job is completed, its result resolved and its money settled (PRF-003)."""

    public_name: ClassVar = "jobCompleted"

    task_id: TaskId
    lease_id: LeaseId
    provider_id: ProviderId
    nullifier: Digest
    digest: Digest
    size: int
    payee: AccountId
    charged: Amount
    ended_ms: int
    expires_at: Height
    method: str
    reasons: str = ""
    output: PayloadRef | None = None
    """The bytes themselves where they are kept hot."""
    link: bytes = b""
    """The proof's content without its window; it links the task to this proof for ever (RES-001)."""
    caller: AccountId = AccountId("")
    kind: str = ""
    earliest: Height = Height(0)
    da_commitment: Digest | None = None
    """The commitment to a large output (DA-001)."""
    height: Height = Height(0)
    """Of the block that was open: its first block. A reorg can move it to another one."""
    paid: tuple[Payment, ...] = ()
    """LEA-009: the payments of the replicas that agree; provider and payee are those of the first, `lease_id` is empty.
    Without a quorum it is empty."""
    is_public: bool = False
    media_type: str = ""
    """RES-009: of the output, as declared with the completion; of a quorum, with its last vote."""


class CompletionIgnored(Event, frozen=True, tag=91):
    """A late or second completion, which has no effect and is recorded (RCV-002)."""

    lease_id: LeaseId
    provider_id: ProviderId
    digest: Digest
    reason: str
    is_penalized: bool = False
    """Whether the provider was penalized for it: once per lease, however often it equivocates."""


class ProofRefused(Event, frozen=True, tag=122):
    """Why a proof was not accepted (PRF-002); the consequences for lease, job and provider are separate events."""

    task_id: TaskId
    lease_id: LeaseId
    provider_id: ProviderId
    method: str
    digest: Digest
    verdict: str
    reasons: str
    at_ms: int


class TaskLinked(Event, frozen=True, tag=123):
    """The content of a task's claim: the proof that it is linked to. It is never in a journal."""

    task_id: TaskId
    link: bytes


def nullifier_key(nullifier: Digest) -> bytes:
    """ENG-005: a nullifier belongs to one task."""
    return b"n" + nullifier


def equivocation_key(lease_id: LeaseId) -> bytes:
    """ENG-005: equivocation about one lease is penalized once."""
    return b"q" + lease_id


def link_key(task_id: TaskId) -> bytes:
    """ENG-005: a task belongs to one nullifier."""
    return b"r" + task_id


class VoteCast(Event, frozen=True, tag=61):
    """The proof of a replica was accepted: its output is a vote for its job."""

    task_id: TaskId
    """The replica."""
    parent: TaskId
    index: int
    lease_id: LeaseId
    provider_id: ProviderId
    digest: Digest
    size: int
    price: int
    method: str
    reasons: str
    ended_ms: int
