"""The methods of JSON-RPC: one table from name to method, the same over HTTP, WebSocket and the Unix socket.

HTTP adds `rpc.discover` and the methods of a WebSocket; the Unix socket adds `events.follow`.
"""

from __future__ import annotations

from typing import Final

from holdfast.api.node_access import RpcMethod
from holdfast.api.rpc import audit_methods, lookup_methods, schedule_methods
from holdfast.api.rpc import validator_methods as validators
from holdfast.api.rpc.methods import (
    accounts,
    aicf,
    availability,
    blobs,
    chain,
    evidence,
    jobs,
    keys,
    node,
    policies,
    providers,
    queue,
    quotes,
    results,
    retention,
)

METHODS: Final[dict[str, RpcMethod]] = {
    **jobs.METHODS,
    **schedule_methods.METHODS,
    **aicf.METHODS,
    **queue.METHODS,
    **quotes.METHODS,
    **lookup_methods.METHODS,
    **results.METHODS,
    **availability.METHODS,
    **blobs.METHODS,
    **retention.METHODS,
    **providers.METHODS,
    **evidence.METHODS,
    **accounts.METHODS,
    **chain.METHODS,
    **validators.METHODS,
    **keys.METHODS,
    **policies.METHODS,
    **audit_methods.METHODS,
    **node.METHODS,
}
