"""What can be asked about proofs and what then happened: handing in, the verdict, and why it was no."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.event import Event, Payload
from holdfast.core.job.quorum import Payment
from holdfast.core.proof.envelope import Envelope
from holdfast.core.values import AccountId, Amount, Digest, EventNo, Height, LeaseId, ProviderId, TaskId


class Submit(msgspec.Struct, frozen=True, gc=False):
    """A result is handed in. Whoever submits this holds the output's bytes durably and has checked their digest."""

    lease_id: LeaseId
    provider_id: ProviderId
    envelope: Envelope


class Trouble(StrEnum):
    """Why there is no verdict that anybody could be blamed for (PRF-002)."""

    NONE = ""
    VERIFIER_FAILED = "VERIFIER_FAILED"
    """It crashed, took too long or too much memory, more than once: others may try the job."""
    NO_VERIFIER = "NO_VERIFIER"
    """This node knows no such method: the job can never be proved here."""


class Judge(msgspec.Struct, frozen=True, gc=False):
    """The verdict of the verifier on what was handed in."""

    lease_id: LeaseId
    is_good: bool
    reasons: str = ""
    output: bytes | None = None
    """The output's bytes where policy keeps them hot, in the store (TIER-001); whoever judges has checked them."""
    trouble: Trouble = Trouble.NONE
    """Not empty where the verifier itself failed: the proof is refused, and nobody is blamed."""
    da_commitment: Digest | None = None
    """Of an output that is too large to be kept hot (DA-001); whoever judges has computed it from the bytes."""


class ProofAccepted(Event, frozen=True, tag=90):
    """A proof is in the open block: the job is done, its result is resolved there, its money settled (PRF-003)."""

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
    output: Payload | None = None
    """The bytes themselves where they are kept hot."""
    link: bytes = b""
    """What the proof says, whatever its window: by it the task is linked to this proof for ever (RES-001)."""
    caller: AccountId = AccountId("")
    kind: str = ""
    earliest: Height = Height(0)
    da_commitment: Digest | None = None
    """What large outputs are pinned by (DA-001)."""
    height: Height = Height(0)
    """Of the block that was open: the first one it is in. A reorg moves it without another event of its own."""
    paid: tuple[Payment, ...] = ()
    """LEA-009: who of those that agree gets what; provider and payee are the first of them, and `lease_id` is empty.
    Where there are none, one provider did the work."""


class CompletionIgnored(Event, frozen=True, tag=91):
    """A completion that came too late or a second time, kept because it happened (RCV-002)."""

    lease_id: LeaseId
    provider_id: ProviderId
    digest: Digest
    reason: str
    is_sentenced: bool = False
    """Whether the provider paid for it: once for a lease, however often it says so."""


class ProofRefused(Event, frozen=True, tag=122):
    """Why a proof was not accepted (PRF-002); what follows for lease, job and provider are events of their own."""

    task_id: TaskId
    lease_id: LeaseId
    provider_id: ProviderId
    method: str
    digest: Digest
    verdict: str
    reasons: str
    at_ms: int


class TaskLinked(Event, frozen=True, tag=123):
    """What the claim of a task holds: which proof it is linked to. It is in no journal."""

    task_id: TaskId
    link: bytes


class Verdict(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A verdict that was no; a row of the table `verdict`, whose key is its event. A yes is in the result's row."""

    event: EventNo
    task_id: TaskId
    lease_id: LeaseId
    provider_id: ProviderId
    method: str
    digest: Digest
    verdict: str
    reasons: str
    at_ms: int


PROOF_INVALID, EQUIVOCATION = "PROOF_INVALID", "EQUIVOCATION"
QUORUM_MINORITY: Final = "QUORUM_MINORITY"
"""Another digest than the one that others agreed on (LEA-009)."""
REASONS_MAX: Final = 500
"""So many signs of a verifier's reasons are kept."""


def nullifier_key(nullifier: Digest) -> bytes:
    """ENG-005: a nullifier belongs to one task."""
    return b"n" + nullifier


def equivocation_key(lease_id: LeaseId) -> bytes:
    """ENG-005: who says two things about one lease is sentenced for it once."""
    return b"q" + lease_id


def link_key(task_id: TaskId) -> bytes:
    """ENG-005: a task belongs to one nullifier."""
    return b"r" + task_id
