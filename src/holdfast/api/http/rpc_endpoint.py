"""`POST /rpc`: one JSON-RPC message a request (RPC-001). Nearly all requests take this path, so it is short."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.authentication import bearer_token
from holdfast.api.http.gateway import Gateway
from holdfast.api.http.responses import (
    CLOSE,
    UNSUPPORTED_MEDIA_TYPE,
    Header,
    Receive,
    Response,
    Scope,
    Send,
    send_head,
    send_response,
)
from holdfast.core.base.errors import Refused

LINGER_BYTES: Final = 4 << 20
"""How much of a body that is too long is read and discarded, so that the client receives the refusal."""
_LENGTH_DIGITS_MAX: Final = 20


class _RequestHeaders(msgspec.Struct, gc=False):
    """The headers that matter here."""

    authorization: list[str] = []
    length: int = 0
    kind: bytes = b""
    coding: bytes = b""
    has_cookie: bool = False


class RpcEndpoint:
    """Reads a body within its limits and answers it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, head = self._gateway, _read_headers(scope["headers"])
        token = gateway.token_of(scope) if head.has_cookie else bearer_token(head.authorization)
        principal = await gateway.admit(token, scope)
        if isinstance(principal, Response):
            await send_response(send, principal)
            return
        if refusal := _why_not_json(head):
            await send_response(send, gateway.refuse(refusal, status=UNSUPPORTED_MEDIA_TYPE))
            return
        bytes_max = gateway.bytes_max(principal)
        try:
            body = None if head.length > bytes_max else await read_body(receive, bytes_max)
        except ClientLeft:
            return
        if body is None:
            await self._refuse_too_large(receive, send, bytes_max)
        else:
            await send_response(send, await gateway.answer(body, principal, gateway.address_of(scope)))

    async def _refuse_too_large(self, receive: Receive, send: Send, bytes_max: int) -> None:
        """Answer at once, then read on for a while: a connection closed while the client sends loses the answer."""
        refusal = Refused("SEC-001", f"a body of more than {bytes_max} bytes", _SIZE_HINT, "TooLarge")
        response = self._gateway.refuse(refusal, CLOSE)
        await send_head(send, response)
        await send({"type": "http.response.body", "body": response.body, "more_body": True})
        left = LINGER_BYTES
        while left > 0 and (message := await receive()).get("more_body"):
            left -= len(message["body"])
        await send({"type": "http.response.body", "body": b""})


_SIZE_HINT: Final = "send less at a time; the limit is higher with a key"


class ClientLeft(Exception):
    """The client has closed the connection before its request was complete."""


async def read_body(receive: Receive, bytes_max: int) -> bytes | None:
    """The whole body; None as soon as it is too long."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientLeft
        body = message.get("body", b"")
        size += len(body)
        if size > bytes_max:
            return None
        if not message.get("more_body"):
            return b"".join([*parts, body]) if parts else body
        parts.append(body)


def _read_headers(headers: list[Header]) -> _RequestHeaders:
    head = _RequestHeaders()
    for name, value in headers:
        if name == b"authorization":
            head.authorization.append(value.decode("latin-1"))
        elif name == b"content-length" and len(value) <= _LENGTH_DIGITS_MAX and value.isdigit():
            head.length = int(value)
        elif name == b"content-type":
            head.kind = value
        elif name == b"content-encoding":
            head.coding = value
        elif name == b"cookie":
            head.has_cookie = True
    return head


def _why_not_json(head: _RequestHeaders) -> Refused | None:
    """The content type must be JSON, so that a web page of another origin cannot post here without a preflight request.
    The body must not be compressed, so that its size is known."""
    kind = head.kind.partition(b";")[0].strip().lower()
    if kind != b"application/json":
        says = f"content-type: {kind.decode('latin-1')!r:.40} is not application/json"
        return Refused("RPC-001", says, "send `Content-Type: application/json`", "InvalidRequest")
    if head.coding and head.coding.lower() != b"identity":
        return Refused("RPC-001", "content-encoding: send the body uncompressed", name="InvalidRequest")
    return None
