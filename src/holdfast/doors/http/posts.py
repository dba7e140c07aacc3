"""`POST /rpc`: one JSON-RPC message a request (RPC-001). The way of nearly everything that is asked, so it is short."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.refusal import Refused
from holdfast.doors.http.asking import Asking
from holdfast.doors.http.events import address_of
from holdfast.doors.http.guests import token_in
from holdfast.doors.http.replies import CLOSE, UNSUPPORTED, Header, Receive, Reply, Scope, Send, begin, say

LINGER_BYTES: Final = 4 << 20
"""How much of a body that is too long is read and thrown away, so that the client hears why."""
_LENGTH_DIGITS_MAX: Final = 20


class _Head(msgspec.Struct, gc=False):
    """What the headers say, as far as it matters."""

    token: str | Refused | None = None
    length: int = 0
    kind: bytes = b""
    coding: bytes = b""


class Posts:
    """Reads a body within its bounds and has it answered."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asking, head, address = self._asking, _read(scope["headers"]), address_of(scope)
        visitor = await asking.admit(head.token, address)
        if isinstance(visitor, Reply):
            await say(send, visitor)
            return
        if why := _why_not_json(head):
            await say(send, asking.refuse(why, status=UNSUPPORTED))
            return
        bytes_max = asking.bytes_max(visitor)
        body = None if head.length > bytes_max else await _body(receive, bytes_max)
        if body is None:
            await self._too_long(receive, send, bytes_max)
        elif body is not _LEFT:
            await say(send, await asking.answer(body, visitor, address))

    async def _too_long(self, receive: Receive, send: Send, bytes_max: int) -> None:
        """Say so at once, then let the client finish its sentence: a connection closed in between loses the answer."""
        why = Refused("SEC-001", f"a body of more than {bytes_max} bytes", _HOW_LONG, "TooLarge")
        reply = self._asking.refuse(why, CLOSE)
        await begin(send, reply)
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        left = LINGER_BYTES
        while left > 0 and (message := await receive()).get("more_body"):
            left -= len(message["body"])
        await send({"type": "http.response.body", "body": b""})


_LEFT: Final = b"\x00the client has left"
_HOW_LONG: Final = "send less at a time; whoever shows a key may send more"


async def _body(receive: Receive, bytes_max: int) -> bytes | None:
    """The whole body; None as soon as it is too long; `_LEFT` where the client did not wait."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return _LEFT
        body = message.get("body", b"")
        size += len(body)
        if size > bytes_max:
            return None
        if not message.get("more_body"):
            return b"".join([*parts, body]) if parts else body
        parts.append(body)


def _read(headers: list[Header]) -> _Head:
    head = _Head()
    for name, value in headers:
        if name == b"authorization":
            head.token = token_in(value)
        elif name == b"content-length" and len(value) <= _LENGTH_DIGITS_MAX and value.isdigit():
            head.length = int(value)
        elif name == b"content-type":
            head.kind = value
        elif name == b"content-encoding":
            head.coding = value
    return head


def _why_not_json(head: _Head) -> Refused | None:
    """JSON by name, so that no web page can post here without asking first; and not packed, so that it is its size."""
    kind = head.kind.partition(b";")[0].strip().lower()
    if kind != b"application/json":
        says = f"content-type: {kind.decode('latin-1')!r:.40} is not application/json"
        return Refused("RPC-001", says, "send `Content-Type: application/json`", "InvalidRequest")
    if head.coding and head.coding.lower() != b"identity":
        return Refused("RPC-001", "content-encoding: send it as it is", name="InvalidRequest")
    return None
