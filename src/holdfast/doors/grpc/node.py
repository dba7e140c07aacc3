"""`holdfast.node.v1`: how a node stands, for programs that would rather not parse JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from holdfast.core.refusal import Refused
from holdfast.doors.grpc.handling import Context
from holdfast.doors.grpc.service import Service
from holdfast.wire.gen.holdfast.node.v1 import node_pb2, node_pb2_grpc

NAME = "holdfast.node.v1.NodeService"


class Status(Protocol):
    """What of `node.status` is told here."""

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
    def epoch(self) -> int: ...


class Head(msgspec.Struct, frozen=True):
    """The newest sealed block."""

    height: int
    hash: bytes
    time_ms: int


class NodeService(node_pb2_grpc.NodeServiceServicer):
    """Answers from two questions that the node can be asked."""

    def __init__(
        self,
        status: Callable[[], Awaitable[Status | Refused]],
        head: Callable[[], Awaitable[Head | Refused]],
    ) -> None:
        self._status, self._head = status, head

    async def GetStatus(  # noqa: N802 - the name of the method
        self, _: node_pb2.GetStatusRequest, __: Context
    ) -> node_pb2.GetStatusResponse | Refused:
        found = await self._status()
        if isinstance(found, Refused):
            return found
        fields = node_pb2.GetStatusResponse.DESCRIPTOR.fields_by_name
        return node_pb2.GetStatusResponse(**{name: getattr(found, name) for name in fields})

    async def GetHead(  # noqa: N802
        self, _: node_pb2.GetHeadRequest, __: Context
    ) -> node_pb2.GetHeadResponse | Refused:
        found = await self._head()
        if isinstance(found, Refused):
            return found
        return node_pb2.GetHeadResponse(height=found.height, hash=found.hash, time_ms=found.time_ms)


def node_service(
    status: Callable[[], Awaitable[Status | Refused]], head: Callable[[], Awaitable[Head | Refused]]
) -> Service:
    """Ready to be plugged into the door."""
    return Service(NAME, NodeService(status, head), node_pb2_grpc.add_NodeServiceServicer_to_server)
