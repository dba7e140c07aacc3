"""What goes over the wire: heads and bodies of answers, every no with its name, rule and hint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from holdfast.core.refusal import Refused
from holdfast.doors.answers import problem_of
from holdfast.doors.jsonrpc import failure

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

NO_SNIFFING: Final[Header] = (b"x-content-type-options", b"nosniff")
NO_STORE: Final[Header] = (b"cache-control", b"no-store")
JSON: Final[Header] = (b"content-type", b"application/json")
CLOSE: Final[Header] = (b"connection", b"close")

OK, NO_CONTENT = 200, 204
BAD_REQUEST, METHOD_NOT_ALLOWED, TOO_LATE, UNSUPPORTED, HEAD_TOO_LARGE = 400, 405, 408, 415, 431


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = (JSON,)


def no(why: Refused | Exception, *headers: Header, status: int | None = None) -> Reply:
    """A refusal of the door itself: the error as JSON-RPC has it, under the status that the table gives its name."""
    return Reply(status or problem_of(why).answer.http, failure(None, why), (JSON, *headers))


async def say(send: Send, reply: Reply) -> None:
    await begin(send, reply)
    await send({"type": "http.response.body", "body": reply.body})


async def begin(send: Send, reply: Reply) -> None:
    """Only the head, which says how long the body is."""
    await send({"type": "http.response.start", "status": reply.status, "headers": head_of(reply)})


def head_of(reply: Reply) -> list[Header]:
    length = () if reply.status == NO_CONTENT else ((b"content-length", b"%d" % len(reply.body)),)
    return [*reply.headers, *length, NO_SNIFFING, NO_STORE]


def as_bytes(reply: Reply, more: Sequence[Header] = ()) -> bytes:
    """The answer as it is written where no request has come to be; the connection ends with it."""
    lines = [b"HTTP/1.1 %d %s" % (reply.status, HTTPStatus(reply.status).phrase.encode())]
    lines += [name + b": " + value for name, value in (*head_of(reply), *more, CLOSE)]
    return b"\r\n".join([*lines, b"", reply.body])
