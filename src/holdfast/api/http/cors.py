"""CORS for requests with a token (SEC-001): web pages of `cors_origins` may call with a key of their own.

A page elsewhere never acts with a visitor's cookie: credentials are not allowed, a preflight must ask for
`Authorization`, and an answer to a request without that header cannot be read elsewhere.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from holdfast.api.http.responses import NO_CONTENT, Header, Response, Scope, Send

METHODS: Final = b"GET, HEAD, POST, PUT"
REQUEST_HEADERS: Final = b"authorization, content-type, content-range, range, last-event-id"
EXPOSED: Final = b"content-range, content-length, retry-after, etag"
MAX_AGE_S: Final = b"600"
VARY: Final[Header] = (b"vary", b"origin")


class CorsPolicy:
    """Which origins may read answers."""

    def __init__(self, origins: str) -> None:
        self._origins = frozenset(origins.encode().split())

    def preflight(self, scope: Scope) -> Response | None:
        """The answer to a browser that asks whether it may; None where it may not."""
        if scope["method"] != "OPTIONS" or not self._origins:
            return None
        headers = dict(scope["headers"])
        asked = headers.get(b"access-control-request-headers", b"").lower().replace(b" ", b"").split(b",")
        origin = headers.get(b"origin", b"")
        if origin not in self._origins or b"authorization" not in asked:
            return None
        allowed = (
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", REQUEST_HEADERS),
            (b"access-control-max-age", MAX_AGE_S),
        )
        return Response(NO_CONTENT, b"", (_allow(origin), *allowed, VARY))

    def readable(self, scope: Scope, send: Send) -> Send:
        """The same `send`; for a page of an allowed origin that shows a token, one that lets it read the answer."""
        if not self._origins:
            return send
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"")
        if origin not in self._origins or b"authorization" not in headers:
            return send

        async def send_readable(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                exposed = (b"access-control-expose-headers", EXPOSED)
                message = {**message, "headers": [*message["headers"], _allow(origin), exposed, VARY]}
            await send(message)

        return send_readable


def _allow(origin: bytes) -> Header:
    return b"access-control-allow-origin", origin
