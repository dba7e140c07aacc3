"""Answers in the words of load-s3-agent: JSON, errors as `{"error": …}`, and any origin may read them."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.http.responses import CLOSE, JSON, Header, Response

TEXT: Final[Header] = (b"content-type", b"text/plain; charset=utf-8")
CORS: Final[tuple[Header, ...]] = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"*"),
)
PREFLIGHT: Final[tuple[Header, ...]] = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PATCH, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b"*, authorization"),
    (b"access-control-max-age", b"86400"),
)


class HttpFault(Exception):
    """Ends a request with this answer; raised where a stream is read, far from where it is answered."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def reply(value: object, *headers: Header, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value), (JSON, *headers))


def error(status: int, message: str, *headers: Header) -> Response:
    """An error of a handler. The connection ends with it, since the rest of the body may not have been read."""
    return Response(status, msgspec.json.encode({"error": message}), (JSON, CLOSE, *headers))


def text(status: int, message: str, *headers: Header) -> Response:
    """Answers that the original's framework gives, not its handlers."""
    return Response(status, message.encode(), (TEXT, *headers))


def retry_after(ms: int) -> Header:
    return (b"retry-after", b"%d" % max(1, -(-ms // 1000)))
