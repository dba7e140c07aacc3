"""Heads and bodies of HTTP responses. Every refusal carries its name, rule and hint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from holdfast.api.authentication import bearer_token
from holdfast.api.error_codes import error_reply
from holdfast.api.rpc.jsonrpc import error_message
from holdfast.core.base.errors import Refused

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

NOSNIFF: Final[Header] = (b"x-content-type-options", b"nosniff")
NO_STORE: Final[Header] = (b"cache-control", b"no-store")
JSON: Final[Header] = (b"content-type", b"application/json")
CLOSE: Final[Header] = (b"connection", b"close")

OK, NO_CONTENT = 200, 204
BAD_REQUEST, METHOD_NOT_ALLOWED, REQUEST_TIMEOUT, UNSUPPORTED_MEDIA_TYPE, HEAD_TOO_LARGE = 400, 405, 408, 415, 431


class Response(msgspec.Struct, frozen=True, gc=False):
    """A whole response."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = (JSON,)


def refusal_response(error: Refused | Exception, *headers: Header, status: int | None = None) -> Response:
    """A refusal of the server itself: the error as JSON-RPC has it, under the status that the table gives its name."""
    return Response(status or error_reply(error).codes.http, error_message(None, error), (JSON, *headers))


def refusal_json(refusal: Refused) -> dict[str, str]:
    """A refusal outside of JSON-RPC."""
    return {"name": refusal.name, "rule": refusal.rule, "message": refusal.message, "hint": refusal.hint}


def token_of(headers: Iterable[Header]) -> str | Refused | None:
    """The bearer token of a request; None where it has none."""
    return bearer_token([value.decode("latin-1") for name, value in headers if name == b"authorization"])


def address_of(scope: Scope) -> str:
    """The peer's address; empty where the server does not know it."""
    client = scope.get("client")
    return client[0] if client else ""


async def send_response(send: Send, response: Response) -> None:
    await send_head(send, response)
    await send({"type": "http.response.body", "body": response.body})


async def send_head(send: Send, response: Response) -> None:
    """Only the head; its content-length is that of the whole body."""
    await send({"type": "http.response.start", "status": response.status, "headers": response_headers(response)})


async def reject_websocket(send: Send, response: Response) -> None:
    """Refuse a handshake with an HTTP response."""
    headers = response_headers(response)
    await send({"type": "websocket.http.response.start", "status": response.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.body})


def response_headers(response: Response) -> list[Header]:
    length = () if response.status == NO_CONTENT else ((b"content-length", b"%d" % len(response.body)),)
    return [*response.headers, *length, NOSNIFF, NO_STORE]


def as_bytes(response: Response, more: Sequence[Header] = ()) -> bytes:
    """The response as it is written to a connection without a request; the connection is closed after it."""
    lines = [b"HTTP/1.1 %d %s" % (response.status, HTTPStatus(response.status).phrase.encode())]
    lines += [name + b": " + value for name, value in (*response_headers(response), *more, CLOSE)]
    return b"\r\n".join([*lines, b"", response.body])
