"""Maps refusals and faults to gRPC status codes (RPC-001), by the table that all APIs share.

Name, rule, hint and details travel as trailers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

import grpc
import structlog

from holdfast.api.error_codes import ErrorReply, error_reply
from holdfast.api.grpc.call_wrapping import (
    CallBody,
    CallRefused,
    Context,
    Handler,
    Interceptor,
    decode_inside_call,
    reply_always,
    wrap_call,
)
from holdfast.core.base.errors import Corrupt, Refused, Unavailable

NAME, RULE, HINT = "holdfast-name", "holdfast-rule", "holdfast-hint"
ABOUT: Final = "holdfast-about-"
"""Each detail of a refusal is a trailer of its own."""
TRAILER_BYTES_MAX: Final = 600
MESSAGE_BYTES_MAX: Final = 1_200
"""Encoded, both are at most three times as long, and together below the 8 KiB that clients accept."""
_PRINTABLE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_log = structlog.get_logger()


class ErrorInterceptor(Interceptor):
    """The outermost interceptor: whatever happens inside a call, the client gets a named error."""

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
            return reply_always(_with_error_reply(_unknown(method), method))
        return wrap_call(decode_inside_call(handler, self._bytes_max), lambda body: _with_error_reply(body, method))


def _with_error_reply(body: CallBody, method: str) -> CallBody:
    async def answered(request: Any, context: Context) -> Any:
        try:
            result = await body(request, context)
        except grpc.aio.AbortError:
            raise  # the client has its answer
        except CallRefused as raised:
            return await _abort_with(context, raised.refusal)
        except (Unavailable, Corrupt) as fault:
            return await _abort_with(context, fault)
        except Exception as fault:
            _log.exception("call_failed", method=method)
            return await _abort_with(context, fault)
        return await _abort_with(context, result) if isinstance(result, Refused) else result

    return answered


def _unknown(method: str) -> CallBody:
    async def refuse(_: Any, __: Context) -> Refused:
        return Refused("RPC-001", f"no method {method!r:.80}", "reflection lists the services", "MethodNotFound")

    return refuse


async def _abort_with(context: Context, fault: Refused | Exception) -> Any:
    reply = error_reply(fault)
    code = grpc.StatusCode[reply.codes.grpc]
    await context.abort(code, _short(reply.message, MESSAGE_BYTES_MAX), trailers_of(reply))


def trailers_of(reply: ErrorReply) -> tuple[tuple[str, str], ...]:
    """Metadata is printable ASCII: everything else, and the percent sign, is percent-encoded UTF-8."""
    details = ((ABOUT + name.replace("_", "-"), value) for name, value in reply.details)
    pairs = ((NAME, reply.name), (RULE, reply.rule), (HINT, reply.hint), *details)
    return tuple((key, quote(_short(value, TRAILER_BYTES_MAX), safe=_PRINTABLE)) for key, value in pairs if value)


def _short(text: str, bytes_max: int) -> str:
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= bytes_max else raw[: bytes_max - 3].decode("utf-8", "ignore") + "…"
