"""JSON-RPC 2.0 without a transport (RPC-001): decode a message once, handle its requests, encode their outcomes last.

Outcomes travel as values: the code that counts them and picks the HTTP status reads `RpcOutcome`, never encoded bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, get_origin, get_type_hints

import msgspec
import structlog

from holdfast.api.error_codes import ErrorReply, error_reply
from holdfast.api.node_access import NodeAccess, Principal, RpcCall, RpcMethod, why_not_allowed
from holdfast.api.rpc.limits import BATCH_MAX, DEPTH_MAX, VALUES_MAX
from holdfast.api.rpc.methods import METHODS
from holdfast.api.rpc.params import read_params, to_json
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.system import strict_json
from holdfast.system.did_you_mean import did_you_mean
from holdfast.system.json_depth import has_more_values, is_nested_deeper

ROWS_SLICE: Final = 50
"""Rows of a list that are turned into JSON between two turns of the loop, about a millisecond."""
_log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class RpcRequest(msgspec.Struct, frozen=True, gc=False):
    """One well-formed request."""

    method: str
    params: object
    id: str | int | None
    is_notification: bool
    """It has no id: it is carried out and not answered."""
    principal: object = None
    """On whose behalf it is sent. Only the Unix socket reads it: a follower forwards requests to the owner there."""


class RpcMessage(msgspec.Struct, frozen=True, gc=False):
    """The requests of one message. What is not a request is here with its error."""

    requests: list[RpcRequest | ErrorReply]
    is_batch: bool = False


class RpcOutcome(msgspec.Struct, frozen=True, gc=False):
    """How one request ended."""

    method: str
    """Empty where there was no request."""
    id: str | int | None
    result: Any
    """The result as JSON has it, or the error."""
    is_notification: bool = False

    @property
    def error(self) -> ErrorReply | None:
        return self.result if isinstance(self.result, ErrorReply) else None


# ------------------------------------------------------------------------------------------------ decode


def decode(
    raw: bytes, *, depth_max: int = DEPTH_MAX, batch_max: int = BATCH_MAX, values_max: int = VALUES_MAX
) -> RpcMessage | Refused:
    """The requests of a message; Refused where it is beyond a limit (SEC-001)."""
    message = decode_json(raw, depth_max, values_max)
    if isinstance(message, Refused):
        return message
    if isinstance(message, ErrorReply):
        return RpcMessage([message])
    if not isinstance(message, list):
        return RpcMessage([_read_request(message)])
    if not message:
        return RpcMessage([_invalid_request("a batch of 0 requests")])
    if len(message) > batch_max:
        says = f"a batch of {len(message)} requests, at most {batch_max}"
        return Refused("SEC-001", says, "send several batches", "TooLarge")
    return RpcMessage([_read_request(each) for each in message], is_batch=True)


def decode_json(raw: bytes, depth_max: int, values_max: int = VALUES_MAX) -> Any:
    """The value; Refused where it is beyond a limit, an error where it is not JSON."""
    if has_more_values(raw, values_max):
        return Refused("SEC-001", f"more than {values_max} values", "send several messages", "TooLarge")
    if is_nested_deeper(raw, depth_max):
        return Refused("SEC-001", f"nested deeper than {depth_max} levels", "no method needs as many", "InvalidRequest")
    try:
        return strict_json.decode_json(raw)
    except strict_json.DuplicateKey as fault:
        return ErrorReply("InvalidRequest", "SEC-001", str(fault), "which of the two is meant?")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        return ErrorReply("ParseError", "RPC-001", f"not JSON: {fault}")


def _read_request(request: object) -> RpcRequest | ErrorReply:
    if not isinstance(request, dict):
        return _invalid_request("a request is an object")
    if request.get("jsonrpc") != "2.0":
        return _invalid_request('jsonrpc: must be "2.0"')
    method, id_ = request.get("method"), request.get("id")
    if not isinstance(method, str):
        return _invalid_request("method: must be text")
    if not isinstance(id_, str | int | None) or isinstance(id_, bool):
        return _invalid_request("id: must be text, an integer or null")
    return RpcRequest(method, request.get("params", {}), id_, "id" not in request, request.get("principal"))


def _invalid_request(says: str) -> ErrorReply:
    return ErrorReply("InvalidRequest", "RPC-001", says)


# ------------------------------------------------------------------------------------------------ handle


async def handle(
    access: NodeAccess, message: RpcMessage, principal: Principal, methods: Mapping[str, RpcMethod] = METHODS
) -> list[RpcOutcome]:
    """The outcomes of a message's requests, in their order. Requests of a batch run concurrently."""
    if not message.is_batch:
        return [await _handle_request(access, message.requests[0], principal, methods)]
    running = (_handle_request(access, each, principal, methods) for each in message.requests)
    return await asyncio.gather(*running)


async def _handle_request(
    access: NodeAccess, request: RpcRequest | ErrorReply, principal: Principal, methods: Mapping[str, RpcMethod]
) -> RpcOutcome:
    if isinstance(request, ErrorReply):
        return RpcOutcome("", None, request)
    result = await _result(access, request, principal, methods)
    return RpcOutcome(request.method, request.id, result, request.is_notification)


async def _result(
    access: NodeAccess, request: RpcRequest, principal: Principal, methods: Mapping[str, RpcMethod]
) -> Any:
    """The result as JSON has it, or the error."""
    name, method = request.method, methods.get(request.method)
    if method is None:
        hint = did_you_mean(name, methods, otherwise="rpc.discover lists them")
        return ErrorReply("MethodNotFound", "RPC-001", f"no method {name!r:.80}", hint)
    call = RpcCall(name, principal)
    if refusal := why_not_allowed(principal, name, method.roles):
        return error_reply(refusal)
    try:
        params = read_params(method.params, request.params)
        result = params if isinstance(params, Refused) else await call_method(access, method, call, params)
    except (Unavailable, Corrupt) as fault:
        return error_reply(fault)
    except Exception as fault:
        _log.exception("request_failed", method=name)
        return error_reply(fault)
    if isinstance(result, Refused):
        return error_reply(result)
    return await _shown_in_slices(access, result) if _is_long(result) else to_json(result)


def _is_long(result: object) -> bool:
    kind: Any = type(result)
    return any(len(getattr(result, name)) > ROWS_SLICE for name in _lists_of(kind))


@cache
def _lists_of(kind: type) -> tuple[str, ...]:
    """The fields of a record that are lists."""
    hints = get_type_hints(kind) if issubclass(kind, msgspec.Struct) else {}
    return tuple(name for name, hint in hints.items() if get_origin(hint) is list)


async def _shown_in_slices(access: NodeAccess, result: msgspec.Struct) -> dict[str, Any]:
    """A result with a long list as JSON has it, a slice of rows at a time: others are served in between (SEC-002)."""
    shown = {}
    async with access.long_turn:
        for name in result.__struct_fields__:
            value = getattr(result, name)
            shown[name] = await _shown_rows(value) if type(value) is list else to_json(value)
    return shown


async def _shown_rows(rows: list[Any]) -> list[Any]:
    shown: list[Any] = []
    for start in range(0, len(rows), ROWS_SLICE):
        shown += [to_json(row) for row in rows[start : start + ROWS_SLICE]]
        await asyncio.sleep(0)
    return shown


async def call_method(access: NodeAccess, method: RpcMethod, call: RpcCall, params: msgspec.Struct) -> Any:
    """What a method answers, typed. A follower forwards a write to the owner, whose answer is as JSON has it."""
    if method.is_write and access.forward_to_owner is not None:
        return await access.forward_to_owner(call.method, to_json(params), call.principal)
    return await method.handle(access, call, params)


# ------------------------------------------------------------------------------------------------ encode


def encode(message: RpcMessage, outcomes: Sequence[RpcOutcome]) -> bytes | None:
    """The answer to a message; None where it held only notifications."""
    answers = [_answer(each) for each in outcomes if not each.is_notification]
    if not answers:
        return None
    return _encode(answers if message.is_batch else answers[0])


def error_message(id_: object, refusal: Refused | Exception) -> bytes:
    """A whole answer that refuses, for a server that has to refuse before there is a request."""
    return _encode(_error_object(id_, error_reply(refusal)))


def _answer(outcome: RpcOutcome) -> dict[str, Any]:
    if (error := outcome.error) is not None:
        return _error_object(outcome.id, error)
    return {"jsonrpc": "2.0", "id": outcome.id, "result": outcome.result}


def _error_object(id_: object, error: ErrorReply) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": error_json(error)}


def error_json(error: ErrorReply) -> dict[str, Any]:
    """The error object of an answer."""
    data: dict[str, Any] = {"name": error.name, "rule": error.rule, "hint": error.hint}
    if error.details:
        data["about"] = dict(error.details)
    return {"code": error.codes.rpc, "message": error.message, "data": data}
