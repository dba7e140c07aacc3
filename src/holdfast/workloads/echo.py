"""`echo`: the smallest possible work, which returns its input; `sleep` does so after a while."""

from __future__ import annotations

from typing import Any

from holdfast.core.base.canonical import canonical
from holdfast.core.job.spec import Payload
from holdfast.workloads.invalid_input import InvalidJobInput


def echo(payload: Payload) -> bytes:
    """Prompt or input: a text as it is, anything else as canonical bytes. The same on every machine."""
    said = echoed(payload)
    return said.encode() if isinstance(said, str) else canonical(said)


def echoed(payload: Payload) -> Any:
    spec = payload.spec
    return spec["prompt"] if spec.get("prompt") is not None else spec["input"]


def sleep_ms(payload: Payload) -> int:
    """How long `sleep` waits."""
    ms = (payload.spec.get("params") or {}).get("ms", 0)
    if isinstance(ms, bool) or not isinstance(ms, int) or ms < 0:
        raise InvalidJobInput("params.ms: expected a number of milliseconds")
    return ms
