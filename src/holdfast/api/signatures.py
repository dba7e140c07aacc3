"""Signature checks (PRV-003): one function and one message, whichever API a signed message arrives by."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import VerifySignature
from holdfast.core.proof.envelope import Envelope, signed_bytes

SIGNATURE_FAILED: Final = Refused(
    "PRV-003", "signature verification failed", "sign with the provider's key", "Unauthorized"
)


def why_not_signed(verify: VerifySignature, public: bytes, message: bytes, signature: bytes) -> Refused | None:
    """PRV-003: the key has signed exactly these bytes."""
    return None if verify(public, message, signature) else SIGNATURE_FAILED


def why_not_signed_proof(verify: VerifySignature, public: bytes, proof: Envelope) -> Refused | None:
    """PRV-003: the lease id in the body binds the signature to this lease."""
    if not 0 <= proof.type < 2**32:
        return SIGNATURE_FAILED
    return why_not_signed(verify, public, signed_bytes(proof.type, proof.method, proof.body), proof.signature)
