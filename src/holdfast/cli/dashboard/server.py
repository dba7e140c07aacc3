"""The page's server on loopback: it looks first whether the node answers and knows the token."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import httpx

from holdfast.api.dashboard.page import PageFile
from holdfast.api.http.connection import make_guard
from holdfast.api.http.settings import HttpSettings
from holdfast.api.http.uvicorn_server import UvicornServer, uvicorn_config
from holdfast.api.http.v1.follower_server import FollowerCounts
from holdfast.cli.dashboard.proxy import CONNECT_S, OPEN_PATH, DashboardProxy
from holdfast.client import NodeUnreachable
from holdfast.client.node_url import NodeUrl
from holdfast.client.replies import ProxyAnswer, read_answer
from holdfast.core.base.errors import Unavailable
from holdfast.system.listening import listen_on

HOST: Final = "127.0.0.1"
DRAIN_MS: Final = 500
"""Open streams have no end of their own."""


class DashboardServer:
    """Listens until it is closed."""

    def __init__(self, node: NodeUrl, files: dict[str, PageFile], port: int) -> None:
        self._node, self._files, self._port = node, files, port
        self._opened = AsyncExitStack()
        self.url = self.visitor = ""

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._opened.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._opened.aclose()

    async def _open(self) -> None:
        node = self._node
        local = httpx.AsyncHTTPTransport(uds=node.socket) if node.socket is not None else None
        client = httpx.AsyncClient(transport=local, base_url=node.base, headers=node.headers, verify=node.tls)
        http = await self._opened.enter_async_context(client)
        self.visitor = _visitor(await _ask_who_we_are(node, http))
        if not self._files:
            raise Unavailable("OBS-001", "this installation has no page", "build it: make page")
        settings, sock = HttpSettings(drain_ms=DRAIN_MS), listen_on(HOST, self._port)
        port = sock.getsockname()[1]
        proxy = DashboardProxy(node, http, self._files, port)
        server = UvicornServer(uvicorn_config(proxy, settings), make_guard(settings, FollowerCounts()), None)
        serving = asyncio.create_task(server.serve([sock]), name="dashboard-http")
        self._opened.push_async_callback(_close, server, serving)
        await server.is_up.wait()
        self.url = f"http://{HOST}:{port}" + OPEN_PATH + f"?key={proxy.key}"


async def _close(server: UvicornServer, serving: asyncio.Task[None]) -> None:
    server.stop_listening()
    server.request_exit()
    await serving


async def _ask_who_we_are(node: NodeUrl, http: httpx.AsyncClient) -> dict[str, Any]:
    try:
        answer = await http.get("/v1/session", timeout=CONNECT_S)
    except (httpx.TransportError, OSError) as fault:
        raise NodeUnreachable(f"no answer from {node}: {fault or type(fault).__name__}") from fault
    try:
        if answer.status_code == httpx.codes.OK:
            return dict(answer.json())
        read_answer(answer.content, answer.status_code)  # raises the node's own refusal
    except (ValueError, TypeError, ProxyAnswer):
        pass
    hint = "check the address: it is that of `http.host` and `http.port`"
    raise Unavailable("RPC-001", f"{node} is not a Holdfast node", hint)


def _visitor(session: dict[str, Any]) -> str:
    role, account = session.get("role"), session.get("account")
    if role is None:
        return "a visitor without a key (--token-file shows more)"
    return f"{role} of {account}" if account else str(role)
