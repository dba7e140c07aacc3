"""`attested`: the signature of the leased provider over the proof's body is the proof (PRF-002)."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.proof.envelope import signed_bytes
from holdfast.core.proof.finding import Case, Finding, Method, Where

Verify = Callable[[bytes, bytes, bytes], bool]
"""Public key, message, signature."""


def is_signed(verify: Verify, case: Case) -> bool:
    """PRV-003: by the provider that held the lease, over exactly this body."""
    proof = case.envelope
    return verify(case.public, signed_bytes(proof.type, proof.method, proof.body), proof.signature)


def attested(verify: Verify) -> Method:
    """Cheap, so it runs in a thread, many at a time."""

    def find(case: Case) -> Finding:
        if is_signed(verify, case):
            return Finding(True, "signed by the leased provider")
        return Finding(False, "the signature is not the leased provider's")

    return Method("The leased provider has signed it.", find, Where.THREAD)
