"""Verdicts as they are stored, and their reasons (PRF-002)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.values import Digest, EventNo, LeaseId, ProviderId, TaskId


class ProofVerdict(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A refused proof; a row of the table `verdict` under its event. An accepted one is in the result's row."""

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
"""A vote for another digest than the one that won (LEA-009)."""
REASONS_MAX: Final = 500
"""How many characters of a verifier's reasons are kept."""
