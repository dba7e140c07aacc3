"""One shape for all four kinds of calls, so that a wrapper around calls is written once.

A service returns a message or `Refused`; one that streams yields messages, and `Refused` last. Code deep inside a
stream may raise `CallRefused`.

The end of a client's stream does not prove that the client has sent everything: a stream that was cut off may look the
same for a moment. A service that acts at the end of a stream requires an explicit end message.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from holdfast.core.base.errors import Refused

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
    Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:  # generic for the type checker only
    Context, Handler, Interceptor = grpc.aio.ServicerContext, grpc.RpcMethodHandler, grpc.aio.ServerInterceptor
CallBody = Callable[[Any, Context], Awaitable[Any]]
"""From a request, or an iterator of requests, to the answer, or None where the answer was written in parts."""
CallWrapper = Callable[[CallBody], CallBody]


class CallRefused(Exception):
    """Carries a refusal through code that can only raise."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


_KINDS: Final[dict[tuple[bool, bool], tuple[str, Callable[..., Handler]]]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}


def wrap_call(handler: Handler, wrapper: CallWrapper) -> Handler:
    """The same call inside a wrapper."""
    name, make = _KINDS[bool(handler.request_streaming), bool(handler.response_streaming)]
    body = wrapper(_as_body(getattr(handler, name)))
    return make(body, handler.request_deserializer, handler.response_serializer)


def decode_inside_call(handler: Handler, bytes_max: int) -> Handler:
    """The same call, with decoding inside it: where gRPC itself decodes, the client gets an unknown error."""
    read = _checked_decoder(handler.request_deserializer, bytes_max)
    name, make = _KINDS[bool(handler.request_streaming), bool(handler.response_streaming)]
    body = _as_body(getattr(handler, name))
    if handler.request_streaming:
        return make(body, read, handler.response_serializer)

    async def read_first(raw: bytes, context: Context) -> Any:
        return await body(read(raw), context)

    return make(read_first, None, handler.response_serializer)


def reply_always(body: CallBody) -> Handler:
    """A call of any kind that always gets this answer."""
    return grpc.stream_stream_rpc_method_handler(body, None, None)


def _as_body(behaviour: Callable[[Any, Context], Any]) -> CallBody:
    """A service streams as a generator or by `context.write`; here both become the latter."""
    if not inspect.isasyncgenfunction(behaviour):
        return behaviour

    async def write_each(request: Any, context: Context) -> None:
        async with aclosing(behaviour(request, context)) as messages:
            async for message in messages:
                if isinstance(message, Refused):
                    raise CallRefused(message)
                await context.write(message)

    return write_each


def _checked_decoder(read: Callable[[bytes], Any] | None, bytes_max: int) -> Callable[[bytes], Any]:
    def read_or_refuse(raw: bytes) -> Any:
        if len(raw) > bytes_max:
            message = f"a message of {len(raw)} bytes, at most {bytes_max}"
            raise CallRefused(Refused("SEC-001", message, "send less at once", "TooLarge"))
        try:
            return raw if read is None else read(raw)
        except DecodeError:
            message = f"{len(raw)} bytes that are not the message of this method"
            raise CallRefused(Refused("RPC-001", message, "compare the .proto file", "ParseError")) from None

    return read_or_refuse
