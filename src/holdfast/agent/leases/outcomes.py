"""The outcome of a lease: a completion with its proof, or a failure with its reason, drafted, then signed (PRV-003)."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.agent.executors.execute import REASON_MAX
from holdfast.agent.leases.records import COMPLETED, FAILED, AcceptedOffer, Outcome
from holdfast.core.proof.envelope import ProofType, body_of, signed_bytes
from holdfast.wire.signed_messages import to_sign_failure


class OutcomeDraft(msgspec.Struct, frozen=True):
    """An outcome without its signature: those of several leases are signed together."""

    payload_type: str
    payload: dict[str, Any]
    to_sign: bytes

    def signed(self, signature: bytes) -> Outcome:
        return Outcome(self.payload_type, self.payload | {"signature": signature.hex()})


class ProvedOutput(msgspec.Struct, frozen=True):
    """What a completion says about the output. Bytes travel with it where they are few; else they were uploaded."""

    digest: bytes
    size: int
    took_ms: int
    inline: bytes | None = None
    media_type: str = ""


def draft_completion(offer: AcceptedOffer, provider_id: bytes, output: ProvedOutput) -> OutcomeDraft:
    kind, metrics = ProofType[offer.kind], {"took_ms": output.took_ms}
    body = body_of(offer.task_id, offer.lease_id, provider_id, output.digest, output.size, metrics, output.media_type)
    payload: dict[str, Any] = {"lease_id": offer.lease_id.hex(), "type": int(kind), "method": offer.proof}
    payload["body"] = body.hex()
    if output.inline is not None:
        payload["output"] = output.inline
    return OutcomeDraft(COMPLETED, payload, signed_bytes(kind, offer.proof, body))


def draft_failure(offer: AcceptedOffer, reason: str) -> OutcomeDraft:
    reason = reason.encode("utf-8", "replace").decode()[:REASON_MAX]
    payload = {"lease_id": offer.lease_id.hex(), "reason": reason}
    return OutcomeDraft(FAILED, payload, to_sign_failure(offer.lease_id, reason))
