"""What can be asked of the queue and what then happened: the station's commands and events."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from holdfast.core.canon import H
from holdfast.core.event import Event, Payload
from holdfast.core.values import AccountId, Amount, Digest, Height, Kind, TaskId, Tier

ENQUEUE_TAG: Final = "holdfast.enqueue.v1"


class Enqueue(msgspec.Struct, frozen=True, gc=False):
    """Take a job in. All that does not depend on the state was computed before (`prepare`)."""

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
    asked: bytes = b""
    """Digest of the request without its nonce."""
    quorum_n: int = 0
    quorum_m: int = 0
    replica_proof: str = ""
    """How each replica is proved, where it asks for some (LEA-009)."""
    digest: Digest | None = None
    """Of the payload, where whoever asks has computed it (`event.digest_of`)."""


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """End a job and give its money back; `by` is the requester, None an operator."""

    id: TaskId
    by: AccountId | None = None
    reason: str = "CANCELLED"


class RaiseFee(msgspec.Struct, frozen=True, gc=False):
    """Offer more for a job, which moves it forward; `by` is the requester, None an operator."""

    id: TaskId
    max_fee: Amount
    by: AccountId | None = None


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
    payload: Payload
    max_fee: Amount
    units: int
    priority: int
    enqueue_ms: int
    expires_ms: int
    requirements: bytes
    proof: str
    idempotency: bytes = b""
    asked: bytes = b""
    remembered_until_ms: int = 0
    expires_height: Height = Height(0)
    """The last block in which a proof can be accepted (TTL-001); 0: only time ends the job."""
    quorum_n: int = 0
    quorum_m: int = 0
    """Its replicas are admitted by the events behind this one (LEA-009); 0: it has none."""


class JobCancelled(Event, frozen=True, tag=51):
    """A job ended because somebody wanted so; its money goes back in the open block."""

    id: TaskId
    reason: str
    ended_ms: int


class FeeRaised(Event, frozen=True, tag=52):
    """A job is worth more to its requester now."""

    id: TaskId
    max_fee: Amount
    priority: int


def enqueue_key(asked: Enqueue | JobAdmitted) -> bytes:
    """JOB-002: the same tx, caller and payload are the same job, whatever the height."""
    return _enqueue_key(asked.tx_hash, asked.caller, asked.request_hash)


@lru_cache(maxsize=256)  # asked for three times of each job: before, in and after the decision
def _enqueue_key(tx_hash: Digest, caller: AccountId, request_hash: Digest) -> bytes:
    return b"t" + H(ENQUEUE_TAG, tx_hash, caller.encode(), request_hash)


def job_key(id_: TaskId) -> bytes:
    return b"j" + id_
