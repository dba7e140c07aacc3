"""Commands and events of the queue."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from holdfast.core.base.canonical import H
from holdfast.core.base.event import Command, Event, PayloadRef
from holdfast.core.base.values import AccountId, Amount, Digest, Height, KeyId, Kind, TaskId, Tier

ENQUEUE_TAG: Final = "holdfast.enqueue.v1"


class Enqueue(Command, frozen=True):
    """Admit a job. Everything that does not depend on the state was computed before (`decide.build_enqueue`)."""

    caller: AccountId
    tier: Tier
    kind: Kind
    payload: bytes
    """Canonical bytes."""
    request_hash: Digest
    tx_hash: Digest
    nonce: int
    max_fee: Amount
    units: int
    ttl_ms: int | None
    requirements: bytes
    proof: str
    idempotency: bytes = b""
    """Digest of the API key and the client's idempotency key; empty where none was given."""
    fingerprint: bytes = b""
    """Digest of the request without its nonce."""
    quorum_n: int = 0
    quorum_m: int = 0
    replica_proof: str = ""
    """The proof method of each replica; empty without replicas (LEA-009)."""
    digest: Digest | None = None
    """Of the payload, where the caller has computed it (`event.payload_digest`)."""
    is_public: bool = False
    input_digest: Digest = Digest(b"")
    """Of its input, which the node holds durably (JOB-003); empty where it has none."""
    key: KeyId = KeyId("")
    """The API key that submits it, whose cap counts (SEC-002); empty where there is none."""
    run_ms_max: int = 0
    not_before_ms: int = 0
    """JOB-013: it is not assigned before this time; 0: at once."""


class CancelJob(Command, frozen=True):
    """End a job and refund its money; `by` is the requester, None an operator."""

    id: TaskId
    by: AccountId | None = None
    reason: str = "CANCELLED"


class RaiseFee(Command, frozen=True):
    """Raise the fee of a job, which raises its priority; `by` is the requester, None an operator."""

    id: TaskId
    max_fee: Amount
    by: AccountId | None = None
    key: KeyId = KeyId("")
    """The API key, whose cap counts what is added (SEC-002)."""


class JobAdmitted(Event, frozen=True, tag=50):
    """A job is in the queue and its fee is reserved (JOB-006)."""

    id: TaskId
    caller: AccountId
    tier: Tier
    kind: Kind
    height: Height
    tx_hash: Digest
    nonce: int
    request_hash: Digest
    payload: PayloadRef
    max_fee: Amount
    units: int
    priority: int
    enqueue_ms: int
    expires_ms: int
    requirements: bytes
    proof: str
    idempotency: bytes = b""
    fingerprint: bytes = b""
    idempotency_until_ms: int = 0
    expires_height: Height = Height(0)
    """The last block in which a proof can be accepted (TTL-001); 0: only time ends the job."""
    quorum_n: int = 0
    quorum_m: int = 0
    """Its replicas are admitted by the events after this one (LEA-009); 0: it has none."""
    is_public: bool = False
    input_digest: Digest = Digest(b"")
    run_ms_max: int = 0
    not_before_ms: int = 0
    """It is not assigned before this time (JOB-013); 0: it is ready at once."""


class JobCancelled(Event, frozen=True, tag=51):
    """A job was cancelled; its money is refunded in the open block."""

    id: TaskId
    reason: str
    ended_ms: int


class FeeRaised(Event, frozen=True, tag=52):
    """A job has a higher fee and priority now."""

    id: TaskId
    max_fee: Amount
    priority: int


def enqueue_key(message: Enqueue | JobAdmitted) -> bytes:
    """JOB-002: the same tx, caller and payload are the same job, whatever the height."""
    return _enqueue_key(message.tx_hash, message.caller, message.request_hash)


@lru_cache(maxsize=1_024)  # computed twice for each job: by the decision on its run, and after it
def _enqueue_key(tx_hash: Digest, caller: AccountId, request_hash: Digest) -> bytes:
    return b"t" + H(ENQUEUE_TAG, tx_hash, caller.encode(), request_hash)


def job_key(id_: TaskId) -> bytes:
    return b"j" + id_


def idempotency_key(idempotency: bytes) -> bytes:
    """JOB-002: the claim of a client's idempotency key, which counts for a while."""
    return b"i" + idempotency


def idempotency_checksum(fingerprint: bytes) -> int:
    """Tells a retry from another use of an idempotency key."""
    return int.from_bytes(fingerprint[:7], "big")


class JobExpired(Event, frozen=True, tag=53):
    """A job's time to live ended; its money is refunded in the open block (TTL-001)."""

    id: TaskId
    reason: str
    ended_ms: int


INVALID_INPUT: Final = "INVALID_INPUT"


class JobFailed(Event, frozen=True, tag=54):
    """A job failed too often, or its input is invalid; its money is refunded in the open block (RTY-001, JOB-012)."""

    id: TaskId
    reason: str
    ended_ms: int
    epoch: int = 0
    """In which it counts against its requester, where its input is invalid."""
