"""One shape for all four kinds of calls, so that whatever is put around a call is written once.

A service returns a message or `Refused`; one that streams yields messages, and `Refused` as its last word. Code deep
inside a stream may raise `TurnedAway`.

The end of a client's stream does not prove that the client has said all: one that was cut off looks, for a moment, the
same. A service that does something at the end wants a message that says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from holdfast.core.refusal import Refused

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
    Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:  # generic for the type checker only
    Context, Handler, Interceptor = grpc.aio.ServicerContext, grpc.RpcMethodHandler, grpc.aio.ServerInterceptor
Body = Callable[[Any, Context], Awaitable[Any]]
"""A request, or an iterator of them, in; the answer out, or None where it was written piece by piece."""
Around = Callable[[Body], Body]


class TurnedAway(Exception):
    """A refusal on its way through code that can only raise."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(str(refused))
        self.refused = refused


_KINDS: Final[dict[tuple[bool, bool], tuple[str, Callable[..., Handler]]]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}


def put_around(handler: Handler, around: Around) -> Handler:
    """The same call with something around it."""
    name, make = _KINDS[bool(handler.request_streaming), bool(handler.response_streaming)]
    body = around(_as_body(getattr(handler, name)))
    return make(body, handler.request_deserializer, handler.response_serializer)


def reading_inside(handler: Handler, bytes_max: int) -> Handler:
    """The same call, with what cannot be read raised inside of it: gRPC itself would tell of an unknown error."""
    read = _careful(handler.request_deserializer, bytes_max)
    name, make = _KINDS[bool(handler.request_streaming), bool(handler.response_streaming)]
    body = _as_body(getattr(handler, name))
    if handler.request_streaming:
        return make(body, read, handler.response_serializer)

    async def read_first(raw: bytes, context: Context) -> Any:
        return await body(read(raw), context)

    return make(read_first, None, handler.response_serializer)


def always(body: Body) -> Handler:
    """A call of any kind that only this can be said about."""
    return grpc.stream_stream_rpc_method_handler(body, None, None)


def _as_body(behaviour: Callable[[Any, Context], Any]) -> Body:
    """Services write their streams as generators or write piece by piece; here they become the second."""
    if not inspect.isasyncgenfunction(behaviour):
        return behaviour

    async def write_each(request: Any, context: Context) -> None:
        async with aclosing(behaviour(request, context)) as messages:
            async for message in messages:
                if isinstance(message, Refused):
                    raise TurnedAway(message)
                await context.write(message)

    return write_each


def _careful(read: Callable[[bytes], Any] | None, bytes_max: int) -> Callable[[bytes], Any]:
    def read_or_refuse(raw: bytes) -> Any:
        if len(raw) > bytes_max:
            says = f"a message of {len(raw)} bytes, at most {bytes_max}"
            raise TurnedAway(Refused("SEC-001", says, "send less at once", "TooLarge"))
        try:
            return raw if read is None else read(raw)
        except DecodeError:
            says = f"{len(raw)} bytes that are not the message of this method"
            raise TurnedAway(Refused("RPC-001", says, "compare the .proto file", "ParseError")) from None

    return read_or_refuse
