"""JSON-RPC 2.0 without a transport (RPC-001): bytes of one message in, bytes of its answer out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.doors.answers import Problem, problem_of
from holdfast.doors.desk import LOCAL, Desk, Method, Visitor, nearest, why_not_allowed
from holdfast.doors.methods import METHODS
from holdfast.doors.shapes import plain, read_params

BATCH_MAX: Final = 1_000
_log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


async def answer(
    desk: Desk, raw: bytes, visitor: Visitor = LOCAL, methods: Mapping[str, Method] = METHODS
) -> bytes | None:
    """The answer to one message, single or batch; None where it held only notifications."""
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        return _encode(_failure(None, Problem("ParseError", "RPC-001", f"not JSON: {fault}")))
    if not isinstance(message, list):
        one = await _answer_one(desk, message, visitor, methods)
        return None if one is None else _encode(one)
    if not 0 < len(message) <= BATCH_MAX:
        return _encode(_failure(None, _invalid(f"a batch of {len(message)}: 1 … {BATCH_MAX} requests")))
    all_ = await asyncio.gather(*(_answer_one(desk, one, visitor, methods) for one in message))
    answers = [one for one in all_ if one is not None]
    return _encode(answers) if answers else None


async def _answer_one(
    desk: Desk, request: object, visitor: Visitor, methods: Mapping[str, Method]
) -> dict[str, Any] | None:
    if (why := _why_not_request(request)) is not None:
        return _failure(None, _invalid(why))
    assert isinstance(request, dict)
    outcome = await _outcome(desk, request["method"], request.get("params", {}), visitor, methods)
    if "id" not in request:
        return None  # a notification is obeyed and not answered
    if isinstance(outcome, Problem):
        return _failure(request["id"], outcome)
    return {"jsonrpc": "2.0", "id": request["id"], "result": outcome}


async def _outcome(desk: Desk, name: str, params: object, visitor: Visitor, methods: Mapping[str, Method]) -> Any:
    method = methods.get(name)
    if method is None:
        return Problem("MethodNotFound", "RPC-001", f"no method {name!r:.80}", nearest(name, list(methods)))
    if no := why_not_allowed(visitor, name, method):
        return problem_of(no)
    try:
        result = await perform(desk, name, method, params, visitor)
    except (Unavailable, Corrupt) as fault:
        return problem_of(fault)
    except Exception as fault:
        _log.exception("a request failed inside", method=name)
        return problem_of(fault)
    return problem_of(result) if isinstance(result, Refused) else result


async def perform(desk: Desk, name: str, method: Method, params: object, visitor: Visitor) -> Any:
    """What a method answers, as plain values; a follower hands a write on to who may decide it."""
    asked = read_params(method.params, params)
    if isinstance(asked, Refused):
        return asked
    if method.is_write and desk.hand_on is not None:
        return await desk.hand_on(name, params, visitor)
    result = await method.handle(desk, visitor, asked)
    return result if isinstance(result, Refused) else plain(result)


def _why_not_request(request: object) -> str | None:
    if not isinstance(request, dict):
        return "a request is an object"
    if request.get("jsonrpc") != "2.0":
        return 'jsonrpc: must be "2.0"'
    if not isinstance(request.get("method"), str):
        return "method: must be text"
    if not isinstance(request.get("id"), str | int | None) or isinstance(request.get("id"), bool):
        return "id: must be text, an integer or null"
    return None


def _invalid(says: str) -> Problem:
    return Problem("InvalidRequest", "RPC-001", says)


def failure(id_: object, no: Refused | Exception) -> bytes:
    """A whole answer that says no, for a door that has to refuse before there is a request."""
    return _encode(_failure(id_, problem_of(no)))


def _failure(id_: object, problem: Problem) -> dict[str, Any]:
    data: dict[str, Any] = {"name": problem.name, "rule": problem.rule, "hint": problem.hint}
    if problem.about:
        data["about"] = dict(problem.about)
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": problem.answer.rpc, "message": problem.says, "data": data}}
