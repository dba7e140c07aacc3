"""`echo`: the smallest possible work, which returns its input."""

from __future__ import annotations

from holdfast.core.base.canonical import canonical
from holdfast.core.job.spec import Payload


def echo(payload: Payload) -> bytes:
    """Prompt or input, as canonical bytes."""
    spec = payload.spec
    return canonical(spec["prompt"] if spec.get("prompt") is not None else spec["input"])
