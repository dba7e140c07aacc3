"""The HTTP server (RPC-001): listens with TLS and limits, and drains before it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from holdfast.api.dashboard.live import LiveOverview
from holdfast.api.http.connection import make_guard
from holdfast.api.http.event_fanout import EventFanout
from holdfast.api.http.gateway import Gateway
from holdfast.api.http.metrics.requests import HttpMetrics
from holdfast.api.http.routes import Routes
from holdfast.api.http.settings import HttpSettings, faults
from holdfast.api.http.tls import tls_context
from holdfast.api.http.uvicorn_server import UvicornServer, listening_socket, listening_unix_socket, uvicorn_config
from holdfast.api.http.websocket import websocket_methods
from holdfast.api.node_access import ANONYMOUS, LOCAL, NodeAccess, RpcMethod
from holdfast.api.rpc.methods import METHODS
from holdfast.core.base.errors import Unavailable
from holdfast.ports import Clock

DRAIN_POLL_S: Final = 0.01
_log = structlog.get_logger()


class HttpServer:
    """A listening address, in the node's own event loop."""

    def __init__(
        self,
        access: NodeAccess,
        clock: Clock,
        settings: HttpSettings,
        methods: Mapping[str, RpcMethod] = METHODS,
        unix_path: Path | None = None,
    ) -> None:
        """With `unix_path` it listens on that socket alone, whose permissions are the key to it (SEC-001)."""
        self._settings, self._unix_path, self._inode = settings, unix_path, 0
        self.metrics = HttpMetrics(access, clock)
        known = {**methods, **websocket_methods(is_public=settings.public_events)}
        self._fanout = EventFanout(access, settings.heartbeat_ms)
        guest = ANONYMOUS if unix_path is None else LOCAL
        self._live = LiveOverview(access)
        self._routes = Routes(Gateway(access, clock, settings, known, self.metrics, guest), self._fanout, self._live)
        self._server: UvicornServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = settings.port

    @property
    def url(self) -> str:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{'http' if self._settings.certificate is None else 'https'}://{host}:{self.port}"

    async def open(self) -> None:
        """Listen; raises Unavailable where that is not possible or not safe."""
        if refusals := faults(self._settings):
            raise Unavailable(refusals[0].rule, "; ".join(each.message for each in refusals), refusals[0].hint)
        tls = tls_context(self._settings)
        if self._unix_path is not None:
            sock = listening_unix_socket(self._unix_path)
            self._inode = self._unix_path.stat().st_ino
        else:
            sock = listening_socket(self._settings)
            self.port = sock.getsockname()[1]
        guard = make_guard(self._settings, self.metrics)
        server = UvicornServer(uvicorn_config(self._routes, self._settings), guard, tls)
        self.metrics.connections = lambda: len(guard.places)
        self.metrics.subscribers = lambda: len(self._fanout.subscribers)
        self.metrics.open()
        self._live.open()
        self._server, self._serving = server, asyncio.create_task(server.serve([sock]), name="http")
        await server.is_up.wait()
        _log.info("http_listening", url=self.url if self._unix_path is None else str(self._unix_path))

    async def close(self) -> None:
        """Accept no more connections, end the subscriptions, finish the requests that run, close the connections."""
        if self._server is None or self._serving is None:
            return
        server, self._server = self._server, None
        server.stop_listening()
        self._routes.begin_shutdown()
        await self._live.close()
        await self._wait_empty()
        server.request_exit()
        await self._serving
        self.metrics.close()
        path = self._unix_path
        if path is not None and path.exists() and path.stat().st_ino == self._inode:  # else it is our successor's
            path.unlink()

    async def _wait_empty(self) -> None:
        """Give subscriptions and WebSockets time to end; then uvicorn ends those that are left."""
        try:
            async with asyncio.timeout(self._settings.drain_ms / 1000):
                while not self._routes.is_empty:  # noqa: ASYNC110 - many may leave, in any order
                    await asyncio.sleep(DRAIN_POLL_S)
        except TimeoutError:
            _log.warning("drain_timeout", subscribers=len(self._fanout.subscribers))
