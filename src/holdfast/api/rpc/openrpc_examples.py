"""Parameters that show how each method is called (RPC-001): part of the OpenRPC document, and accepted as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_DIGEST: Final = "5f" * 32
_PAYLOAD: Final = {"kind": "AI", "spec": {"model": "echo", "prompt": "hello"}}
BY_FIELD: Final[dict[str, Any]] = {
    "amount": 1_000,
    "channel": "channel-1",
    "event": 1,
    "expires_ms": 1_893_456_000_000,
    "first": 1,
    "height": 1,
    "id": _DIGEST[:16],
    "invitation": _DIGEST,
    "key": _DIGEST,
    "kind": "AI",
    "max_fee": 100,
    "owner": "alice",
    "payee": "oak",
    "payload": _PAYLOAD,
    "policy": {},
    "provider_id": _DIGEST,
    "reason": "invoice 7",
    "reference": "invoice-7",
    "request": _DIGEST,
    "role": "auditor",
    "second": 2,
    "secret": _DIGEST,
    "session": "001",
    "start": 0,
    "task_id": _DIGEST,
    "subscription": 1,
    "text": _DIGEST[:12],
    "tier": "hot",
    "token": "hf_…",
}
"""One value for each parameter that some method requires."""
BY_METHOD: Final[dict[str, dict[str, Any]]] = {
    "cap.enqueue": {"payload": _PAYLOAD, "max_fee": 100, "caller": "alice"},
    "cap.getQuote": {"payload": _PAYLOAD, "max_fee": 100, "caller": "alice"},
    "cap.listJobs": {"status": "FAILED", "newest_first": True, "limit": 20},
    "chain.listBlocks": {"newest_first": True, "limit": 20},
    "events.subscribe": {"after": 0},
}
"""Where the required parameters alone show too little."""


def example_params(method: str, required: Iterable[str]) -> dict[str, Any]:
    """Parameters of one call."""
    if method in BY_METHOD:
        return BY_METHOD[method]
    return {name: BY_FIELD.get(name, "…") for name in required}
