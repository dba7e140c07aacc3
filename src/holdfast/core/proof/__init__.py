"""Proofs (PRF-001, PRF-003, RCV-001): what a provider shows for its work, and the verdict. Read: envelope, acts,
decide, following."""

from holdfast.core.proof.envelope import ProofType, nullifier, window_of

__all__ = ["ProofType", "nullifier", "window_of"]
