"""Every no to a gRPC status (RPC-001), by the table that all doors share; name, rule and hint travel as trailers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

import grpc
import structlog

from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.doors.answers import Problem, problem_of
from holdfast.doors.grpc.handling import (
    Body,
    Context,
    Handler,
    Interceptor,
    TurnedAway,
    always,
    put_around,
    reading_inside,
)

NAME, RULE, HINT = "holdfast-name", "holdfast-rule", "holdfast-hint"
ABOUT: Final = "holdfast-about-"
"""Each fact of a refusal is a trailer of its own."""
TRAILER_BYTES_MAX: Final = 600
SAYS_BYTES_MAX: Final = 1_200
"""Encoded they are at most three times as long, and together below the 8 KiB that clients take."""
_PRINTABLE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_log = structlog.get_logger()


class Answering(Interceptor):
    """The outermost of what is around a call: whatever happens inside, the caller gets a named answer."""

    def __init__(self, message_bytes_max: int) -> None:
        self._bytes_max = message_bytes_max

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        method = handler_call_details.method
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None:
            return always(_answered(_unknown(method), method))
        return put_around(reading_inside(handler, self._bytes_max), lambda body: _answered(body, method))


def _answered(body: Body, method: str) -> Body:
    async def answered(request: Any, context: Context) -> Any:
        try:
            result = await body(request, context)
        except grpc.aio.AbortError:
            raise  # told already
        except TurnedAway as no:
            return await _tell(context, no.refused)
        except (Unavailable, Corrupt) as fault:
            return await _tell(context, fault)
        except Exception as fault:
            _log.exception("a call failed inside", method=method)
            return await _tell(context, fault)
        return await _tell(context, result) if isinstance(result, Refused) else result

    return answered


def _unknown(method: str) -> Body:
    async def refuse(_: Any, __: Context) -> Refused:
        return Refused("RPC-001", f"no method {method!r:.80}", "reflection lists the services", "MethodNotFound")

    return refuse


async def _tell(context: Context, no: Refused | Exception) -> Any:
    problem = problem_of(no)
    code = grpc.StatusCode[problem.answer.grpc]
    await context.abort(code, _short(problem.says, SAYS_BYTES_MAX), trailers_of(problem))


def trailers_of(problem: Problem) -> tuple[tuple[str, str], ...]:
    """Metadata is printable ASCII: everything else, and the percent sign, is percent-encoded UTF-8."""
    about = ((ABOUT + name.replace("_", "-"), value) for name, value in problem.about)
    pairs = ((NAME, problem.name), (RULE, problem.rule), (HINT, problem.hint), *about)
    return tuple((key, quote(_short(value, TRAILER_BYTES_MAX), safe=_PRINTABLE)) for key, value in pairs if value)


def _short(text: str, bytes_max: int) -> str:
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= bytes_max else raw[: bytes_max - 3].decode("utf-8", "ignore") + "…"
