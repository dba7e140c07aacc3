"""Lists come in pages: the bounds and the filter that every list shares."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.base.errors import Refused
from holdfast.engine import queries

FREE_ROWS, ROWS_PER_TOKEN = 100, 10
"""A list of a hundred rows is one request; ten more take about as long as a short request."""


def why_not_limit(limit: int) -> Refused | None:
    if 1 <= limit <= queries.PAGE_MAX:
        return None
    return Refused("RPC-001", f"params: limit: {limit} is not in 1 … {queries.PAGE_MAX}", name="InvalidParams")


def cost_of_page(params: object) -> int:
    """SEC-001: as how many requests a list counts besides the first: one for every ten rows beyond a hundred."""
    limit = params.get("limit") if isinstance(params, dict) else None
    beyond = min(limit, queries.PAGE_MAX) - FREE_ROWS if isinstance(limit, int) else 0
    return max(0, -(-beyond // ROWS_PER_TOKEN))


def filter_of(columns: Mapping[str, object]) -> dict[str, object]:
    """The columns to filter by: those that have a value. Enumerations become their text."""
    return {name: str(each) if isinstance(each, str) else each for name, each in columns.items() if each is not None}
