"""The HTTP door (RPC-001): opens with TLS and limits, tells where it listens, drains before it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from holdfast.core.refusal import Unavailable
from holdfast.doors.desk import Desk, Method
from holdfast.doors.http.asking import Asking
from holdfast.doors.http.broadcast import Broadcast
from holdfast.doors.http.connection import Guard
from holdfast.doors.http.server import Server, config_of, listening_socket
from holdfast.doors.http.session import session_methods
from holdfast.doors.http.settings import HttpSettings, faults
from holdfast.doors.http.site import Site
from holdfast.doors.http.tally import Tally
from holdfast.doors.http.tls import tls_of
from holdfast.doors.methods import METHODS
from holdfast.ports import Clock

LOOK_AGAIN_S: Final = 0.01
_log = structlog.get_logger()


class HttpDoor:
    """A listening address, in the node's own event loop."""

    def __init__(
        self, desk: Desk, clock: Clock, settings: HttpSettings, methods: Mapping[str, Method] = METHODS
    ) -> None:
        self._settings = settings
        self.tally = Tally(desk, clock)
        known = {**methods, **session_methods(is_public=settings.public_events)}
        self._broadcast = Broadcast(desk, settings.heartbeat_ms)
        self._site = Site(Asking(desk, clock, settings, known, self.tally), self._broadcast)
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = settings.port

    @property
    def url(self) -> str:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{'http' if self._settings.certificate is None else 'https'}://{host}:{self.port}"

    async def open(self) -> None:
        """Listen; raises Unavailable where that is not possible or not safe."""
        if wrong := faults(self._settings):
            raise Unavailable(wrong[0].rule, "; ".join(no.says for no in wrong), wrong[0].hint)
        tls = tls_of(self._settings)
        sock = listening_socket(self._settings)
        self.port = sock.getsockname()[1]
        server = Server(config_of(self._site, self._settings), Guard(self._settings, self.tally), tls)
        self.tally.connections = lambda: len(server.server_state.connections)
        self.tally.subscribers = lambda: len(self._broadcast.viewers)
        self.tally.open()
        self._server, self._serving = server, asyncio.create_task(server.serve([sock]), name="http")
        await server.is_up.wait()
        _log.info("the HTTP door is open", url=self.url)

    async def close(self) -> None:
        """Let nobody in any more, say goodbye to those who follow, finish what was asked, hang up."""
        if self._server is None or self._serving is None:
            return
        server, self._server = self._server, None
        server.stop_listening()
        self._site.farewell()
        await self._wait_empty()
        server.tell_to_exit()
        await self._serving
        self.tally.close()

    async def _wait_empty(self) -> None:
        """Give streams and sessions the time to say their last word; then uvicorn ends whoever is left."""
        try:
            async with asyncio.timeout(self._settings.drain_ms / 1000):
                while not self._site.is_empty:  # noqa: ASYNC110 - many may leave, in any order
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            _log.warning("not all followers could be told", left=len(self._broadcast.viewers))
