"""The one table of queries: each query type with the handler that answers it from the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from holdfast.core.state import State
from holdfast.engine.lookups import catalogue, overview, schedules
from holdfast.engine.queries import (
    accounts,
    blobs,
    chain,
    evidence,
    jobs,
    metrics,
    node,
    providers,
    retention,
)
from holdfast.engine.queries.archive import validators
from holdfast.engine.queries.query import Query

T = TypeVar("T")

QUERIES: Final[dict[type[Query[Any]], Callable[[State, Any], Any]]] = {
    query: handler
    for topic in (
        node,
        accounts,
        blobs,
        chain,
        jobs,
        schedules,
        providers,
        evidence,
        retention,
        metrics,
        overview,
        validators,
        catalogue,
    )
    for query, handler in topic.QUERIES.items()
}


def answer(state: State, query: Query[T]) -> T:
    """Answer from the state as it is now. The answer is a copy: nothing in it changes later."""
    result: T = QUERIES[type(query)](state, query)
    return result
