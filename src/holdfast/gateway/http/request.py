"""One request: its headers, its body within limits of size and time, and whose key it carries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qs

from holdfast.api.http.connection import ClientConnection
from holdfast.api.http.responses import Receive, Scope, Send, address_of
from holdfast.gateway.http.replies import HttpFault, error, text
from holdfast.gateway.key_file import GatewayKey, KeyFile

BEARER: Final = "Bearer "
JSON_BYTES_MAX: Final = 1 << 20
DISCARD_S, DISCARD_PIECES = 0.3, 64


class Request:
    """What a handler sees."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, stall_ms: int) -> None:
        self.scope, self.send = scope, send
        self._receive, self._stall_ms = receive, stall_ms
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.parts = tuple(part for part in self.path.split("/") if part)
        self._headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    @property
    def address(self) -> str:
        return address_of(self.scope)

    def header(self, *names: str) -> str | None:
        """The first of these headers that the request has."""
        return next((self._headers[name] for name in names if name in self._headers), None)

    def flag(self, name: str) -> bool:
        return self.header(name) == "true"

    def query(self, name: str) -> str | None:
        values = parse_qs(self.scope["query_string"].decode("latin-1"), max_num_fields=32).get(name)
        return values[0] if values else None

    @property
    def content_length(self) -> int | None:
        value = self.header("content-length") or ""
        return int(value) if value.isascii() and value.isdigit() else None

    # ------------------------------------------------------------------------------------ the body

    async def body(self, bytes_max: int, too_large: str) -> AsyncIterator[bytes]:
        """The body as it arrives. It ends in an answer where it is too long, stalls, or the client is gone."""
        size = 0
        while True:
            try:
                async with asyncio.timeout(self._stall_ms / 1000):
                    message = await self._receive()
            except TimeoutError:
                raise HttpFault(error(408, "the upload has stalled")) from None
            if message["type"] == "http.disconnect":
                raise HttpFault(error(400, "the client is gone"))
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > bytes_max:
                raise HttpFault(error(413, too_large))
            if piece:
                yield piece
            if not message.get("more_body", False):
                return

    async def discard_body(self) -> None:
        """Read a little of what the client is still sending: it looks for an answer when it has sent everything."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                for _ in range(DISCARD_PIECES):
                    message = await self._receive()
                    if not message.get("more_body", False):
                        return

    async def json_body(self) -> bytes:
        """A short JSON body; what axum answers where it is none."""
        kind = (self.header("content-type") or "").split(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise HttpFault(text(415, "Expected request with `Content-Type: application/json`"))
        return b"".join([piece async for piece in self.body(JSON_BYTES_MAX, "length limit exceeded")])

    # ------------------------------------------------------------------------------------ a long answer

    async def send_piece(self, piece: bytes) -> None:
        """Some bytes of an answer that goes on. A client that reads nothing for too long is disconnected."""
        try:
            async with asyncio.timeout(self._stall_ms / 1000):
                await self.send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            connection: ClientConnection = self.scope["state"]["connection"]
            connection.abort()  # closing would wait until everything is read
            raise ConnectionAbortedError("the client reads nothing") from None

    # ------------------------------------------------------------------------------------ the key

    def key(self, keys: KeyFile) -> GatewayKey:
        """Whose request this is; ends in 401 where that is not known."""
        authorization = self.header("authorization")
        if authorization is None:
            raise HttpFault(error(401, "missing Authorization header"))
        if not authorization.startswith(BEARER):
            raise HttpFault(error(401, "invalid Authorization header format. Expected 'Bearer <token>'"))
        if keys.is_empty():
            raise HttpFault(error(500, "server configuration error"))
        key = keys.authenticate(authorization.removeprefix(BEARER))
        if key is None:
            raise HttpFault(error(401, "invalid load_acc key"))
        if key.revoked_ms is not None:
            raise HttpFault(error(401, "invalid API key"))
        return key

    def reader(self, keys: KeyFile) -> GatewayKey | None:
        """Who reads: by the header, or by `?token=`; None for everybody else."""
        authorization = self.header("authorization") or ""
        token = authorization.removeprefix(BEARER) if authorization.startswith(BEARER) else self.query("token")
        key = keys.authenticate(token) if token else None
        return None if key is None or key.revoked_ms is not None else key
