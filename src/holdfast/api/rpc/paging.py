"""Lists come in pages: the bounds and the filter that every list shares."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.base.errors import Refused
from holdfast.engine import queries


def why_not_limit(limit: int) -> Refused | None:
    if 1 <= limit <= queries.PAGE_MAX:
        return None
    return Refused("RPC-001", f"params: limit: {limit} is not in 1 … {queries.PAGE_MAX}", name="InvalidParams")


def filter_of(columns: Mapping[str, object]) -> dict[str, object]:
    """The columns to filter by: those that have a value. Enumerations become their text."""
    return {name: str(each) if isinstance(each, str) else each for name, each in columns.items() if each is not None}
