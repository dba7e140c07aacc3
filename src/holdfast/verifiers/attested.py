"""`attested`: the signature of the leased provider over the proof's body is the proof (PRF-002)."""

from __future__ import annotations

from holdfast.core.base.values import VerifySignature
from holdfast.core.proof.envelope import signed_bytes
from holdfast.ports.verifier import (
    ATTESTED_REASON,
    Isolation,
    ProofMethod,
    VerificationInput,
    VerificationResult,
)


def is_signed(verify: VerifySignature, case: VerificationInput) -> bool:
    """PRV-003: whether the provider that held the lease has signed exactly this body."""
    proof = case.envelope
    return verify(case.public_key, signed_bytes(proof.type, proof.method, proof.body), proof.signature)


def attested_method(verify: VerifySignature) -> ProofMethod:
    """Cheap, so it runs in a thread, many at a time."""

    def check(case: VerificationInput) -> VerificationResult:
        if is_signed(verify, case):
            return VerificationResult(True, ATTESTED_REASON)
        return VerificationResult(False, "the signature is not the leased provider's")

    return ProofMethod("The leased provider has signed it.", check, Isolation.THREAD)
