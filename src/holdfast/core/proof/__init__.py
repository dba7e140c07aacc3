"""Proofs (PRF-001 … PRF-003, RCV-001, RCV-002, RES-001): a provider submits one for its work, a verifier judges it, and
it counts once.

Read: envelope, messages, model, nullifier_link, votes, decide, apply. The workflow
`complete` connects submission and acceptance with results and retention.
"""

from holdfast.core.proof.envelope import ProofType, nullifier, window_of

__all__ = ["ProofType", "nullifier", "window_of"]
