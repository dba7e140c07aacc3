"""The input of a job at its admission (JOB-003): durable before the job is, and its account's own."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Digest
from holdfast.core.job.input_ref import INLINE_BYTES_MAX, OCTETS, input_digest
from holdfast.ports.inputs import Inputs


def with_inline_input(payload: dict[str, Any], encoded: str | None) -> tuple[dict[str, Any], bytes | None] | Refused:
    """The payload with digest and size of the bytes that came with it; where it states them, they must be the same."""
    if encoded is None:
        return payload, None
    if len(encoded) > INLINE_BYTES_MAX * 4 // 3 + 4:
        hint = "upload it before: PUT /v1/inputs/DIGEST"
        return Refused("JOB-003", f"params: input: at most {INLINE_BYTES_MAX} bytes", hint, "TooLarge")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return Refused("JOB-003", "params: input: not base64", name="InvalidParams")
    if len(raw) > INLINE_BYTES_MAX:
        return Refused("JOB-003", f"params: input: {len(raw)} bytes, at most {INLINE_BYTES_MAX}", name="TooLarge")
    stated = payload.get("input")
    stated = {} if stated is None else stated
    if not isinstance(stated, dict):
        return Refused("JOB-003", "payload.input: expected an object", name="InvalidParams")
    actual = {"digest": input_digest(raw).hex(), "size": len(raw)}
    for name, value in actual.items():
        if stated.get(name, value) != value:
            return Refused("JOB-003", f"payload.input.{name}: not that of params.input", name="InvalidParams")
    return payload | {"input": {"media_type": OCTETS, **stated, **actual}}, raw


async def why_not_input(
    inputs: Inputs | None, caller: AccountId, digest: Digest, size: int, raw: bytes | None
) -> Refused | None:
    """Hold the bytes that came with a job, or find those that its account has uploaded."""
    if inputs is None:
        return Refused("JOB-003", "this node holds no inputs", name="Unavailable")
    if raw is not None:
        await inputs.put_small(caller, digest, raw)
    held = await inputs.use(caller, digest)
    if held is None:
        hint = "upload it before: PUT /v1/inputs/DIGEST"
        return Refused("JOB-003", f"payload.input.digest: {caller} has not uploaded it", hint, "NotFound")
    if held != size:
        return Refused("JOB-003", f"payload.input.size: {size}, it has {held} bytes", name="InvalidParams")
    return None
