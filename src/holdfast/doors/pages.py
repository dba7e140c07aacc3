"""Lists at the doors come in pages: the bounds that every list shares."""

from __future__ import annotations

from holdfast.core.refusal import Refused
from holdfast.engine import read


def why_not_limit(limit: int) -> Refused | None:
    if 1 <= limit <= read.PAGE_MAX:
        return None
    return Refused("RPC-001", f"params: limit: {limit} is not in 1 … {read.PAGE_MAX}", name="InvalidParams")
