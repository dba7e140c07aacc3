"""What a node can be asked: one table from method name to handler, shared by every door that speaks JSON-RPC."""

from __future__ import annotations

from typing import Final

from holdfast.doors.desk import Method
from holdfast.doors.methods import (
    aicf,
    availability,
    chain,
    evidence,
    jobs,
    keys,
    money,
    node,
    providers,
    queue,
    quotes,
    results,
    retention,
)

METHODS: Final[dict[str, Method]] = {
    **jobs.METHODS,
    **aicf.METHODS,
    **queue.METHODS,
    **quotes.METHODS,
    **results.METHODS,
    **availability.METHODS,
    **retention.METHODS,
    **providers.METHODS,
    **evidence.METHODS,
    **money.METHODS,
    **chain.METHODS,
    **keys.METHODS,
    **node.METHODS,
}
