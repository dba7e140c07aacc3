"""`holdfast.result.v1`: results over gRPC, by the same methods as JSON-RPC, so that every refusal has one name."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from google.protobuf.message import Message

from holdfast.api.grpc.auth_interceptor import caller
from holdfast.api.grpc.call_wrapping import Context
from holdfast.api.grpc.service import GrpcService
from holdfast.api.node_access import NodeAccess, Principal, RpcCall, for_keys_only, why_not_allowed
from holdfast.api.rpc.jsonrpc import call_method
from holdfast.api.rpc.methods.results import METHODS
from holdfast.api.rpc.params import read_params
from holdfast.core.base.errors import Refused
from holdfast.wire.gen.holdfast.result.v1 import result_pb2, result_pb2_grpc

NAME: Final = "holdfast.result.v1.ResultService"
M = TypeVar("M", bound=Message)


class ResultService(result_pb2_grpc.ResultServiceServicer):
    """RES-007: three calls, each one RPC method."""

    def __init__(self, node: NodeAccess, *, public_reads: bool) -> None:
        self._node = node
        self._methods = METHODS if public_reads else for_keys_only(METHODS)

    async def GetResult(  # noqa: N802 - the name of the method
        self, request: result_pb2.GetResultRequest, _: Context
    ) -> result_pb2.GetResultResponse | Refused:
        result = await self._call("cap.getResult", request, result_pb2.Result)
        return result if isinstance(result, Refused) else result_pb2.GetResultResponse(result=result)

    async def ReadResult(  # noqa: N802
        self, request: result_pb2.ReadResultRequest, _: Context
    ) -> result_pb2.ReadResultResponse | Refused:
        result = await self._call("cap.readResult", request, result_pb2.Result)
        return result if isinstance(result, Refused) else result_pb2.ReadResultResponse(result=result)

    async def ConsumeResult(  # noqa: N802
        self, request: result_pb2.ConsumeResultRequest, _: Context
    ) -> result_pb2.ConsumeResultResponse | Refused:
        return await self._call("cap.consumeResult", request, result_pb2.ConsumeResultResponse)

    async def _call(self, name: str, request: Message, reply: type[M]) -> M | Refused:
        method, principal = self._methods[name], caller()
        assert isinstance(principal, Principal)
        if refusal := why_not_allowed(principal, name, method.roles):
            return refusal
        params = read_params(method.params, {field.name: value for field, value in request.ListFields()})
        if isinstance(params, Refused):
            return params
        answer = await call_method(self._node, method, RpcCall(name, principal), params)
        return answer if isinstance(answer, Refused) else _message(reply, answer)


def _message(kind: type[M], answer: Any) -> M:
    """The message with the fields of an answer; None is left out, and what others do not see (JOB-010)."""
    fields = kind.DESCRIPTOR.fields_by_name
    values = answer if isinstance(answer, dict) else msgspec.structs.asdict(answer)
    return kind(**{name: _value(fields[name], values[name]) for name in fields if values.get(name) is not None})


def _value(field: Any, value: Any) -> Any:
    """An answer that a follower has from the owner is as JSON has it: bytes are hex."""
    return bytes.fromhex(value) if field.type == field.TYPE_BYTES and isinstance(value, str) else value


def result_service(node: NodeAccess, *, public_reads: bool = True) -> GrpcService:
    """The service, for `GrpcServer`."""
    service = ResultService(node, public_reads=public_reads)
    return GrpcService(NAME, service, result_pb2_grpc.add_ResultServiceServicer_to_server)
