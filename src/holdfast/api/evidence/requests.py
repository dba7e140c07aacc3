"""The requests that some records carry: a lease accepted, completed or failed, each signed by its provider (EVD-005).

The signature is part of the record, so that the batch it travels in does not matter (PRV-003). A completion may carry
its output, if that is small; a larger one was uploaded before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.api.signatures import why_not_signed, why_not_signed_proof
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import LeaseId, ProviderId, VerifySignature
from holdfast.core.lease.messages import AckLease, FailLease
from holdfast.core.proof.envelope import Envelope, ProofBody, read_body
from holdfast.core.result.ids import result_digest
from holdfast.wire.signed_messages import OUTPUT_INLINE_BYTES_MAX, to_sign_acceptance, to_sign_failure

ACCEPTED, COMPLETED, FAILED = "LEASE_ACCEPTED", "LEASE_COMPLETED", "LEASE_FAILED"
MALFORMED, TOO_LARGE, FORGED, NO_OUTPUT = "Malformed", "TooLarge", "Forged", "NoOutput"
"""Why a record is rejected for good: the name of its dead letter."""
Reason = tuple[str, str]
"""Why a record is rejected: a name and a sentence."""
_UNREADABLE: Final = (MALFORMED, "its request cannot be read")


class Completion(msgspec.Struct, frozen=True):
    """A proof, and the output that came with it; None where it was uploaded."""

    proof: Envelope
    output: bytes | None = None


Request = Completion | FailLease | AckLease


class _AcceptancePayload(msgspec.Struct, frozen=True):
    lease_id: str
    signature: str


class _CompletionPayload(msgspec.Struct, frozen=True):
    type: int
    method: str
    body: str
    signature: str
    output: bytes | None = None


class _FailurePayload(msgspec.Struct, frozen=True):
    lease_id: str
    reason: str
    signature: str


_decode_acceptance: Final = msgspec.json.Decoder(_AcceptancePayload).decode
_decode_completion: Final = msgspec.json.Decoder(_CompletionPayload).decode
_decode_failure: Final = msgspec.json.Decoder(_FailurePayload).decode


class RequestSigner(msgspec.Struct, frozen=True):
    """Whose requests are read: the provider, its key, and how a signature is verified."""

    provider_id: ProviderId
    public: bytes
    verify: VerifySignature


def _read_acceptance(by: RequestSigner, payload: msgspec.Raw) -> AckLease | Reason | None:
    """LEA-003: a delivered acceptance is the ACK. None where the record is without a signature: it requests nothing."""
    try:
        acceptance = _decode_acceptance(payload)
        lease_id, signature = LeaseId(bytes.fromhex(acceptance.lease_id)), bytes.fromhex(acceptance.signature)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, ValueError):
        return _UNREADABLE
    refusal = why_not_signed(by.verify, by.public, to_sign_acceptance(lease_id), signature)
    return AckLease(lease_id, by.provider_id) if refusal is None else (FORGED, refusal.message)


def _read_signed_completion(by: RequestSigner, payload: msgspec.Raw) -> Completion | Reason:
    completion = read_completion_payload(payload)
    if completion is None:
        return _UNREADABLE
    refusal = why_not_signed_proof(by.verify, by.public, completion.proof)
    if refusal is not None:
        return FORGED, refusal.message
    return _why_not_output(completion) or completion


def read_completion_payload(payload: msgspec.Raw) -> Completion | None:
    """The proof that a record carries, and its output; None where it cannot be read."""
    try:
        read = _decode_completion(payload)
        body, signature = bytes.fromhex(read.body), bytes.fromhex(read.signature)
    except (msgspec.DecodeError, ValueError):
        return None
    return Completion(Envelope(read.type, read.method, body, signature), read.output)


def _why_not_output(completion: Completion) -> Reason | None:
    """RCV-001: an output that comes with its proof is the one that was proved."""
    output = completion.output
    if output is None:
        return None
    if len(output) > OUTPUT_INLINE_BYTES_MAX:
        return TOO_LARGE, f"an output of {len(output)} bytes, at most {OUTPUT_INLINE_BYTES_MAX} come with the proof"
    body = read_body(completion.proof.body)
    if isinstance(body, ProofBody) and (body.output_digest, body.output_size) != (result_digest(output), len(output)):
        return NO_OUTPUT, "its output is not the one that is proved"
    return None if not isinstance(body, Refused) else (MALFORMED, body.message)


def _read_failure_report(by: RequestSigner, payload: msgspec.Raw) -> FailLease | Reason:
    try:
        failure = _decode_failure(payload)
        lease_id, signature = LeaseId(bytes.fromhex(failure.lease_id)), bytes.fromhex(failure.signature)
    except (msgspec.DecodeError, ValueError):
        return _UNREADABLE
    refusal = why_not_signed(by.verify, by.public, to_sign_failure(lease_id, failure.reason), signature)
    return FailLease(lease_id, by.provider_id, failure.reason) if refusal is None else (FORGED, refusal.message)


REQUEST_READERS: Final[dict[str, Callable[[RequestSigner, msgspec.Raw], Request | Reason | None]]] = {
    ACCEPTED: _read_acceptance,
    COMPLETED: _read_signed_completion,
    FAILED: _read_failure_report,
}
