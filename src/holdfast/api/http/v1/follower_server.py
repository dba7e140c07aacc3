"""A follower as a peer over HTTP (SYN-001): `GET /v1/packages/…` for whoever shows its one token, and nothing else."""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter

from holdfast.api.http.connection import make_guard
from holdfast.api.http.gateway import WWW_AUTHENTICATE
from holdfast.api.http.responses import (
    OK,
    Receive,
    Response,
    Scope,
    Send,
    refusal_response,
    reject_websocket,
    send_response,
    token_of,
)
from holdfast.api.http.settings import HttpSettings
from holdfast.api.http.uvicorn_server import UvicornServer, listening_socket, uvicorn_config
from holdfast.api.http.v1.package_endpoint import OCTETS, PREFIX, read_package
from holdfast.api.node_access import PackageService
from holdfast.core.base.errors import Corrupt, Refused, Unavailable


class FollowerRoutes:
    """One path and one token: a follower has no journal, and so no keys."""

    def __init__(self, service: PackageService, token: str) -> None:
        self._service, self._token = service, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(scope)
        if scope["type"] == "websocket":
            await receive()
            await reject_websocket(send, response)
        else:
            await send_response(send, response)

    async def _answer(self, scope: Scope) -> Response:
        token = token_of(scope["headers"])
        if not isinstance(token, str) or not hmac.compare_digest(token.encode(), self._token.encode()):
            refusal = Refused(
                "SEC-001", "a follower's token is needed", "send `Authorization: Bearer <token>`", "Unauthorized"
            )
            return refusal_response(refusal, WWW_AUTHENTICATE)
        if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith(PREFIX):
            return refusal_response(Refused("RPC-001", f"there is only GET {PREFIX}", name="NotFound"))
        try:
            found = await read_package(self._service, scope["path"].removeprefix(PREFIX))
        except (Unavailable, Corrupt) as fault:
            return refusal_response(fault)
        return refusal_response(found) if isinstance(found, Refused) else Response(OK, found, (OCTETS,))


class FollowerCounts:
    """Violations of a limit."""

    def __init__(self) -> None:
        self.refusals, self.disconnected = Counter[str](), Counter[str]()


class FollowerServer:
    """Listens on one address until it is closed."""

    def __init__(self, service: PackageService, token: str, host: str, port: int) -> None:
        self._settings = HttpSettings(host=host, port=port)
        self._routes = FollowerRoutes(service, token)
        self._server: UvicornServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = port

    async def open(self) -> None:
        settings = self._settings
        sock = listening_socket(settings)
        self.port = sock.getsockname()[1]
        self._server = UvicornServer(
            uvicorn_config(self._routes, settings), make_guard(settings, FollowerCounts()), None
        )
        self._serving = asyncio.create_task(self._server.serve([sock]), name="follower-http")
        await self._server.is_up.wait()

    async def close(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.stop_listening()
            self._server.request_exit()
            await self._serving
            self._server = None
