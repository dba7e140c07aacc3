"""`holdfast.result.v1`: results over gRPC, by the very methods that JSON-RPC has, so that every no has one name."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from holdfast.core.refusal import Refused
from holdfast.doors.desk import Desk, Visitor, why_not_allowed
from holdfast.doors.grpc.handling import Context
from holdfast.doors.grpc.identifying import caller
from holdfast.doors.grpc.service import Service
from holdfast.doors.jsonrpc import perform
from holdfast.doors.methods.results import METHODS
from holdfast.wire.gen.holdfast.result.v1 import result_pb2, result_pb2_grpc

NAME: Final = "holdfast.result.v1.ResultService"


class ResultService(result_pb2_grpc.ResultServiceServicer):
    """RES-007: three calls, each one method of the desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def GetResult(  # noqa: N802 - the name of the method
        self, request: result_pb2.GetResultRequest, _: Context
    ) -> result_pb2.GetResultResponse | Refused:
        said = await self._ask("cap.getResult", request)
        return said if isinstance(said, Refused) else result_pb2.GetResultResponse(result=_result(said))

    async def ReadResult(  # noqa: N802
        self, request: result_pb2.ReadResultRequest, _: Context
    ) -> result_pb2.ReadResultResponse | Refused:
        said = await self._ask("cap.readResult", request)
        return said if isinstance(said, Refused) else result_pb2.ReadResultResponse(result=_result(said))

    async def ConsumeResult(  # noqa: N802
        self, request: result_pb2.ConsumeResultRequest, _: Context
    ) -> result_pb2.ConsumeResultResponse | Refused:
        said = await self._ask("cap.consumeResult", request)
        return said if isinstance(said, Refused) else result_pb2.ConsumeResultResponse(**_bytes_in(said, {"task_id"}))

    async def _ask(self, name: str, request: Message) -> dict[str, Any] | Refused:
        method, visitor = METHODS[name], caller()
        assert isinstance(visitor, Visitor)
        if no := why_not_allowed(visitor, name, method):
            return no
        said: dict[str, Any] | Refused = await perform(self._desk, name, method, _params(request), visitor)
        return said


def _params(request: Message) -> dict[str, object]:
    """What was said, as JSON has it; what was not said is not there."""
    return {field.name: value.hex() if isinstance(value, bytes) else value for field, value in request.ListFields()}


def _result(said: dict[str, Any]) -> result_pb2.Result:
    names = result_pb2.Result.DESCRIPTOR.fields_by_name
    told = {name: said[name] for name in names if said[name] is not None}
    return result_pb2.Result(
        **_bytes_in(told, {"task_id", "proof_nullifier", "result_digest", "da_commitment", "provider_id"})
    )


def _bytes_in(said: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: bytes.fromhex(value) if name in names else value for name, value in said.items()}


def result_service(desk: Desk) -> Service:
    """Ready to be plugged into the door."""
    return Service(NAME, ResultService(desk), result_pb2_grpc.add_ResultServiceServicer_to_server)
