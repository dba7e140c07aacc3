"""Methods about the node itself: its status, and the digest of its state."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.__about__ import __version__
from holdfast.api.dashboard.summary import NodeSummary, node_summary
from holdfast.api.node_access import READERS, NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.params import NoParams
from holdfast.core.base.values import Network
from holdfast.engine.queries.accounts import CountLedger
from holdfast.engine.queries.node import GetStateDigest, StateDigest


class NodeStatus(msgspec.Struct, frozen=True):
    """The status of a node: its role, and how far its journal and its tables have come."""

    version: str
    network: Network
    chain_id: int
    role: str
    phase: str
    batch: int
    term: int
    event: int
    time_ms: int
    tables_as_of: int
    accounts: int
    reservations: int
    """Reservations that are open."""


async def node_status(access: NodeAccess) -> NodeStatus:
    """The status of this node now."""
    source = access.source
    ledger = await source.query_durable(CountLedger())
    replication = source.replication_status()
    head = replication.tip
    return NodeStatus(
        version=__version__,
        network=source.policy.network,
        chain_id=source.policy.chain_id,
        role=replication.role,
        phase=replication.status,
        batch=head.number,
        term=head.term,
        event=head.last,
        time_ms=head.time_ms,
        tables_as_of=replication.tables_as_of,
        accounts=ledger.accounts,
        reservations=ledger.reservations,
    )


async def _get_status(access: NodeAccess, _: RpcCall, __: NoParams) -> NodeStatus:
    return await node_status(access)


async def _get_state_digest(access: NodeAccess, _: RpcCall, __: NoParams) -> StateDigest:
    return await access.source.query_durable(GetStateDigest())


async def _get_overview(access: NodeAccess, _: RpcCall, __: NoParams) -> NodeSummary:
    return await node_summary(access)


METHODS: Final[dict[str, RpcMethod]] = {
    "node.getOverview": RpcMethod(
        "The node at a glance: verdict, alerts, queue, providers, chain, evidence, archive.",
        NoParams,
        NodeSummary,
        _get_overview,
    ),
    "node.getStatus": RpcMethod("The status of the node.", NoParams, NodeStatus, _get_status),
    "node.getStateDigest": RpcMethod(
        "The digest of the whole state; slow on a large one.", NoParams, StateDigest, _get_state_digest, READERS
    ),
}
