"""Lists come in pages: the bounds and the filter that every list shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.engine import queries

ROWS_PER_TOKEN: Final = 100


def why_not_limit(limit: int) -> Refused | None:
    if 1 <= limit <= queries.PAGE_MAX:
        return None
    return Refused("RPC-001", f"params: limit: {limit} is not in 1 … {queries.PAGE_MAX}", name="InvalidParams")


def cost_of_page(params: object) -> int:
    """SEC-001: as how many requests a list counts besides the first: as it has hundreds of rows beyond a hundred."""
    limit = params.get("limit") if isinstance(params, dict) else None
    return max(0, min(limit, queries.PAGE_MAX) - 1) // ROWS_PER_TOKEN if isinstance(limit, int) else 0


def filter_of(columns: Mapping[str, object]) -> dict[str, object]:
    """The columns to filter by: those that have a value. Enumerations become their text."""
    return {name: str(each) if isinstance(each, str) else each for name, each in columns.items() if each is not None}
