"""`holdfast.node.v1`: the status and the head of a node, for programs that would rather not parse JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from holdfast.api.grpc.call_wrapping import Context
from holdfast.api.grpc.service import GrpcService
from holdfast.core.base.errors import Refused
from holdfast.wire.gen.holdfast.node.v1 import node_pb2, node_pb2_grpc

NAME = "holdfast.node.v1.NodeService"


class HasNodeStatus(Protocol):
    """The fields of `node.getStatus` that this service returns."""

    @property
    def version(self) -> str: ...
    @property
    def network(self) -> str: ...
    @property
    def chain_id(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def event(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def term(self) -> int: ...


class HeadView(msgspec.Struct, frozen=True):
    """The newest sealed block."""

    height: int
    hash: bytes
    time_ms: int


class NodeService(node_pb2_grpc.NodeServiceServicer):
    """Answers with the node's status and its newest block."""

    def __init__(
        self,
        status: Callable[[], Awaitable[HasNodeStatus | Refused]],
        head: Callable[[], Awaitable[HeadView | Refused]],
    ) -> None:
        self._status, self._head = status, head

    async def GetStatus(self, _: node_pb2.GetStatusRequest, __: Context) -> node_pb2.GetStatusResponse | Refused:  # noqa: N802 - the name of the method
        status = await self._status()
        if isinstance(status, Refused):
            return status
        fields = node_pb2.GetStatusResponse.DESCRIPTOR.fields_by_name
        return node_pb2.GetStatusResponse(**{name: getattr(status, name) for name in fields})

    async def GetHead(self, _: node_pb2.GetHeadRequest, __: Context) -> node_pb2.GetHeadResponse | Refused:  # noqa: N802
        head = await self._head()
        if isinstance(head, Refused):
            return head
        return node_pb2.GetHeadResponse(height=head.height, hash=head.hash, time_ms=head.time_ms)


def node_service(
    status: Callable[[], Awaitable[HasNodeStatus | Refused]], head: Callable[[], Awaitable[HeadView | Refused]]
) -> GrpcService:
    """The service, for `GrpcServer`."""
    return GrpcService(NAME, NodeService(status, head), node_pb2_grpc.add_NodeServiceServicer_to_server)
