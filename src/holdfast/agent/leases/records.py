"""The evidence records of a lease: their types and what they carry (EVD-005).

`LEASE_ACCEPTED` carries the offer and `LEASE_COMPLETED` a small output, so that the spool is all that a restarted agent
needs: what is spooled is on disk before it is sent.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.spool.files.record import BLOCK_FENCE
from holdfast.wire.signed_messages import OUTPUT_INLINE_BYTES_MAX

ACCEPTED, STARTED, PROGRESS = "LEASE_ACCEPTED", "EXECUTION_STARTED", "PROGRESS"
READY, COMPLETED, FAILED = "OUTPUT_READY", "LEASE_COMPLETED", "LEASE_FAILED"
OUTCOMES: Final = (COMPLETED, FAILED)
PAYLOAD_INLINE_BYTES_MAX: Final = OUTPUT_INLINE_BYTES_MAX
"""A larger payload is not part of `LEASE_ACCEPTED`: its offer is a file of the work folder."""


class AcceptedOffer(msgspec.Struct, frozen=True):
    """A lease as it was offered."""

    lease_id: bytes
    task_id: bytes
    kind: str
    attempt: int
    payload: bytes
    """The job's canonical payload."""
    proof: str
    t_deadline_ms: int
    """By the node's clock, at the time of the offer: renewals move it."""

    @property
    def is_small(self) -> bool:
        return len(self.payload) <= PAYLOAD_INLINE_BYTES_MAX


class Outcome(msgspec.Struct, frozen=True):
    """A lease's outcome, ready to be spooled. It is decided once, so that every retry sends the same bytes."""

    payload_type: str
    payload: dict[str, Any]


def acceptance_payload(offer: AcceptedOffer, signature: bytes) -> dict[str, Any]:
    """What `LEASE_ACCEPTED` carries; delivered, it is the ACK (LEA-003)."""
    payload: dict[str, Any] = {
        "lease_id": offer.lease_id.hex(),
        "task_id": offer.task_id.hex(),
        "kind": offer.kind,
        "attempt": offer.attempt,
        "proof": offer.proof,
        "t_deadline_ms": offer.t_deadline_ms,
        "signature": signature.hex(),
    }
    if offer.is_small:
        payload["payload"] = offer.payload
    return payload


class _AcceptedPayload(msgspec.Struct, frozen=True):
    lease_id: str
    task_id: str
    kind: str
    attempt: int
    proof: str
    t_deadline_ms: int
    payload: bytes | None = None


class _LeasePayload(msgspec.Struct, frozen=True):
    """The field that names the lease: a fence calls it its block."""

    lease_id: str = ""
    block_id: str = ""


class _LeaseRecord(msgspec.Struct, frozen=True):
    payload_type: str
    payload: msgspec.Raw


_decode_record: Final = msgspec.json.Decoder(_LeaseRecord).decode
_decode_lease: Final = msgspec.json.Decoder(_LeasePayload).decode
_decode_accepted: Final = msgspec.json.Decoder(_AcceptedPayload).decode


def read_lease_record(line: bytes) -> tuple[str, bytes, AcceptedOffer | None] | None:
    """The type of a spooled record, its lease, and the offer that it carries; None where it is not about a lease."""
    try:
        record = _decode_record(line)
        named = _decode_lease(record.payload)
        lease_id = bytes.fromhex(named.block_id if record.payload_type == BLOCK_FENCE else named.lease_id)
        offer = _read_offer(record.payload) if record.payload_type == ACCEPTED else None
    except (msgspec.DecodeError, ValueError):
        return None
    return (record.payload_type, lease_id, offer) if lease_id else None


def _read_offer(payload: msgspec.Raw) -> AcceptedOffer | None:
    """None where the payload was too large to be carried: the offer is a file then."""
    accepted = _decode_accepted(payload)
    if accepted.payload is None:
        return None
    return AcceptedOffer(
        lease_id=bytes.fromhex(accepted.lease_id),
        task_id=bytes.fromhex(accepted.task_id),
        kind=accepted.kind,
        attempt=accepted.attempt,
        payload=accepted.payload,
        proof=accepted.proof,
        t_deadline_ms=accepted.t_deadline_ms,
    )
