"""uvicorn with our loop, our socket and our protocols, without signals and without logs of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import Any

import uvicorn

from holdfast.api.http.accept.acceptor import Acceptor, AcceptorOptions
from holdfast.api.http.connection import ConnectionGuard, GuardedHttp, GuardedWebSocket
from holdfast.api.http.responses import as_bytes
from holdfast.api.http.settings import HttpSettings
from holdfast.api.rpc.unix_socket import SOCKET_PATH_MAX
from holdfast.core.base.errors import Unavailable
from holdfast.system.listening import BACKLOG, listen_on


def uvicorn_config(app: Any, settings: HttpSettings) -> uvicorn.Config:
    ping_s = settings.ping_ms / 1000
    return uvicorn.Config(
        app,
        http=GuardedHttp,
        ws=GuardedWebSocket,
        ws_max_size=settings.body_bytes_max,
        ws_ping_interval=ping_s,
        ws_ping_timeout=ping_s,
        ws_per_message_deflate=False,  # memory for every connection, and bombs
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="critical",  # what goes wrong is in our own log; what clients do wrong is counted, not logged
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=settings.idle_ms / 1000,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.drain_ms / 1000,  # type: ignore[arg-type]
    )


class UvicornServer(uvicorn.Server):
    """Runs inside the node: the node handles signals, and a tick a second is enough."""

    def __init__(self, config: uvicorn.Config, guard: ConnectionGuard, tls: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self._guard, self._tls = guard, tls
        self._exit_requested = asyncio.Event()
        self.is_up = asyncio.Event()
        self.servers: list[Acceptor] = []  # type: ignore[assignment]

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config, state, guard = self.config, self.server_state, self._guard
        loop = asyncio.get_running_loop()
        options = AcceptorOptions(
            guard=guard,
            make_protocol=lambda place, head_s: GuardedHttp(
                config, state, {"guard": guard}, loop, place=place, head_s=head_s
            ),
            tls=self._tls,
            response_bytes=lambda response: as_bytes(response, state.default_headers),
        )
        self.servers = [Acceptor(sock, options) for sock in sockets or ()]
        self.started = True
        self.is_up.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):  # not wait_for: on Python 3.11 it drops a cancelling
                async with asyncio.timeout(1.0):
                    await self._exit_requested.wait()

    def request_exit(self) -> None:
        self.should_exit = True
        self._exit_requested.set()

    def stop_listening(self) -> None:
        for server in self.servers:
            server.stop_listening()


def listening_socket(settings: HttpSettings) -> socket.socket:
    """A socket that listens, so that its port is known before it is served."""
    try:
        return listen_on(settings.host, settings.port)
    except OSError as fault:
        where = f"{settings.host}:{settings.port}"
        raise Unavailable("RPC-001", f"{where} cannot be listened on: {fault}", "choose another http.port") from fault


def listening_unix_socket(path: Path) -> socket.socket:
    """The same in a folder: only the node's user can open it. The journal's lock keeps the one of a live owner safe."""
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise Unavailable("RPC-001", f"{path} is too long for a socket", "use a data folder with a shorter path")
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    path.chmod(0o600)
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock
