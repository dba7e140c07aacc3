"""JSON-RPC 2.0 without a transport (RPC-001): bytes of one message in, bytes of its answer out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.doors.answers import Problem, problem_of
from holdfast.doors.methods import METHODS, Desk, Handler

BATCH_MAX: Final = 1_000
_log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


async def answer(desk: Desk, raw: bytes, methods: Mapping[str, Handler] = METHODS) -> bytes | None:
    """The answer to one message, single or batch; None where it held only notifications."""
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        return _encode(_failure(None, Problem("ParseError", "RPC-001", f"not JSON: {fault}")))
    if not isinstance(message, list):
        one = await _answer_one(desk, message, methods)
        return None if one is None else _encode(one)
    if not 0 < len(message) <= BATCH_MAX:
        return _encode(_failure(None, _invalid(f"a batch of {len(message)}: 1 … {BATCH_MAX} requests")))
    all_ = await asyncio.gather(*(_answer_one(desk, one, methods) for one in message))
    answers = [one for one in all_ if one is not None]
    return _encode(answers) if answers else None


async def _answer_one(desk: Desk, request: object, methods: Mapping[str, Handler]) -> dict[str, Any] | None:
    if (why := _why_not_request(request)) is not None:
        return _failure(None, _invalid(why))
    assert isinstance(request, dict)
    outcome = await _outcome(desk, request["method"], request.get("params", {}), methods)
    if "id" not in request:
        return None  # a notification is obeyed and not answered
    if isinstance(outcome, Problem):
        return _failure(request["id"], outcome)
    return {"jsonrpc": "2.0", "id": request["id"], "result": outcome}


async def _outcome(desk: Desk, method: str, params: object, methods: Mapping[str, Handler]) -> Any:
    handler = methods.get(method)
    if handler is None:
        return Problem("MethodNotFound", "RPC-001", f"no method {method!r:.80}", f"known: {', '.join(methods)}")
    try:
        result = await handler(desk, params)
    except (Unavailable, Corrupt) as fault:
        return problem_of(fault)
    except Exception as fault:
        _log.exception("a request failed inside", method=method)
        return problem_of(fault)
    return problem_of(result) if isinstance(result, Refused) else result


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
    data = {"name": problem.name, "rule": problem.rule, "hint": problem.hint}
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": problem.answer.rpc, "message": problem.says, "data": data}}
