"""Builds the command that submits a completion (RCV-001): the same checks, whichever API the proof arrives by."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import ProviderId
from holdfast.core.lease.model import Lease
from holdfast.core.proof.envelope import Envelope, ProofBody, read_body
from holdfast.core.proof.messages import SubmitCompletion
from holdfast.engine import queries
from holdfast.engine.queries import ReadSource
from holdfast.ports import Blobs

BODY_BYTES_MAX: Final = 4_096
"""A proof stays in memory and in its batch until the verdict, so it is small (ENG-007)."""


async def build_completion(
    blobs: Blobs, source: ReadSource, provider_id: ProviderId, proof: Envelope
) -> SubmitCompletion | Refused:
    """RCV-001: a completion is accepted once the node holds its output. The caller has checked the signature."""
    body = check_completion(proof)
    if isinstance(body, Refused):
        return body
    before = await earlier_submission(source, provider_id, body)
    if before is not None and before.submitted != body.output_digest:  # its output is not needed
        return SubmitCompletion(body.lease_id, provider_id, proof, is_output_held=False, record=before)
    if await blobs.size(body.output_digest) != body.output_size:
        message = f"the node does not hold {body.output_size} bytes with the digest {body.output_digest[:32].hex()}"
        return Refused("RCV-001", message, "send the output first")
    if before is None and not await blobs.was_sent(body.lease_id, body.output_digest):
        message = f"lease {body.lease_id.hex()} has not sent the bytes with the digest {body.output_digest.hex()}"
        return Refused("JOB-010", message, "send the output first")
    return SubmitCompletion(body.lease_id, provider_id, proof)


async def other_submission(source: ReadSource, provider_id: ProviderId, body: ProofBody) -> Lease | None:
    """RCV-002: the lease for which the same provider has submitted another digest."""
    before = await earlier_submission(source, provider_id, body)
    return before if before is not None and before.submitted != body.output_digest else None


async def earlier_submission(source: ReadSource, provider_id: ProviderId, body: ProofBody) -> Lease | None:
    """The lease, if this provider has submitted a digest for it; rows are read of ended jobs only."""
    for lease in await queries.attempts(source, body.task_id):
        if (lease.id, lease.provider_id) == (body.lease_id, provider_id) and lease.submitted is not None:
            return lease
    return None


def check_completion(proof: Envelope) -> ProofBody | Refused:
    """The body of a proof, if it is small enough and can be read."""
    if len(proof.body) > BODY_BYTES_MAX:
        message = f"body: {len(proof.body)} bytes, at most {BODY_BYTES_MAX}"
        return Refused("PRF-001", message, "large data belongs into the output", "TooLarge")
    return read_body(proof.body)
