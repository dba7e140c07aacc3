"""Retries the request of a dead letter (EVD-007): a completion whose output was missing when its record arrived."""

from __future__ import annotations

from typing import Final

from holdfast.api.completion import build_completion
from holdfast.api.evidence.requests import NO_OUTPUT
from holdfast.api.evidence.validation import read_completion
from holdfast.api.node_access import NodeAccess
from holdfast.core.base.errors import Refused
from holdfast.core.evidence.model import DeadLetter
from holdfast.core.proof.messages import SubmitCompletion

_SETTLE_HINT: Final = "settle it instead"


async def retry_command(node: NodeAccess, dead_letter: DeadLetter, raw: bytes | None) -> SubmitCompletion | Refused:
    """The command, or why it cannot be retried. The signature was verified when the record arrived."""
    if dead_letter.name != NO_OUTPUT or node.blobs is None:
        message = f"a dead letter {dead_letter.name} has no request that can be retried"
        return Refused("EVD-007", message, _SETTLE_HINT, "InvalidParams")
    completion = read_completion(raw) if raw is not None and len(raw) == dead_letter.size else None
    if completion is None:
        message = f"the bytes of dead letter {dead_letter.event} are not stored any more"
        return Refused("EVD-007", message, _SETTLE_HINT)
    return await build_completion(node.blobs, node.source, dead_letter.provider_id, completion.proof)
