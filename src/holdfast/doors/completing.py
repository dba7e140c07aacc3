"""From a proof to the command that hands it in (RCV-001): the same checks, whichever door it came by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.core.proof.acts import Submit
from holdfast.core.proof.envelope import Envelope, read_body, signed_bytes
from holdfast.core.refusal import Refused
from holdfast.core.values import ProviderId
from holdfast.ports import Blobs

BODY_BYTES_MAX: Final = 4_096
"""A proof is in memory and in its batch until the verdict, so it is none of the large payloads (ENG-007)."""


def is_signed(verify: Callable[[bytes, bytes, bytes], bool], public: bytes, proof: Envelope) -> bool:
    """PRV-003: the lease id in the body makes the signature good for this lease alone."""
    if not 0 <= proof.type < 2**32:
        return False
    return verify(public, signed_bytes(proof.type, proof.method, proof.body), proof.signature)


async def completion(blobs: Blobs, provider_id: ProviderId, proof: Envelope) -> Submit | Refused:
    """RCV-001: a result is handed in when the node holds its bytes. The signature was checked before."""
    if len(proof.body) > BODY_BYTES_MAX:
        says = f"body: {len(proof.body)} bytes, at most {BODY_BYTES_MAX}"
        return Refused("PRF-001", says, "what is large belongs into the output", "TooLarge")
    body = read_body(proof.body)
    if isinstance(body, Refused):
        return body
    if await blobs.size(body.output_digest) != body.output_size:
        says = f"the node does not hold {body.output_size} bytes with the digest {body.output_digest[:32].hex()}"
        return Refused("RCV-001", says, "send the output first")
    return Submit(body.lease_id, provider_id, proof)
