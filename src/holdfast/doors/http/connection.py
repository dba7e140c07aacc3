"""One connection under guard (SEC-001): how many, how long a head may take, how slow a client may be.

uvicorn parses and answers; it has no limits on heads, on their time or on how long a client takes nothing. These two
classes add them, and give a stream what ASGI does not tell: whether the client is still there and takes what is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from holdfast.core.refusal import Refused
from holdfast.doors.http.replies import BAD_REQUEST, HEAD_TOO_LARGE, TOO_LATE, Reply, as_bytes, no
from holdfast.doors.http.settings import HttpSettings
from holdfast.doors.http.tally import Tally

LINGER_S = 5.0
"""How long a dropped client may take what was sent before, the reason included."""


class Wire(Protocol):
    """What a stream needs to know of its connection."""

    def on_lost(self, tell: Callable[[], None]) -> None:
        """Call this when the client is gone; at once where it is gone already."""
        ...

    async def can_send(self, within_s: float) -> bool:
        """Whether the client has taken enough to be sent more, or takes it within this time."""
        ...

    def abort(self) -> None:
        """Hang up without a word."""
        ...


class Guard(msgspec.Struct, frozen=True):
    """What every connection of a door is held to."""

    settings: HttpSettings
    tally: Tally


class GuardedHttp(HttpToolsProtocol):
    """A connection that speaks HTTP/1.1."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state | {"wire": self}, _loop)
        self._guard: Guard = app_state["guard"]
        self._tell: list[Callable[[], None]] = []
        self._is_lost = False
        self._arriving = ""
        """Which part of a request has begun and not ended: head, body or none."""
        self._timer: asyncio.TimerHandle | None = None
        self._timed = ""
        self._taking: asyncio.TimerHandle | None = None
        self._head_bytes = self._complete = 0
        self._why: Reply | None = None

    # ------------------------------------------------------------------------------------ Wire

    def on_lost(self, tell: Callable[[], None]) -> None:
        self._tell.append(tell)
        self.flow.resume_reading()  # requests sent ahead have stopped it, and then nobody would see the client leave
        if self._is_lost:
            tell()

    async def can_send(self, within_s: float) -> bool:
        if not self.flow.write_paused or self._is_lost:
            return True
        return await _within(self.flow.drain(), within_s)

    def abort(self) -> None:
        self.transport.abort()

    # ------------------------------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        settings = self._guard.settings
        transport.set_write_buffer_limits(high=settings.send_bytes_max)
        if len(self.connections) > settings.connections_max:
            says = f"{settings.connections_max} connections are open already"
            self._refuse(no(Refused("SEC-001", says, "close some, or try again later", "RateLimited"), status=503))
        else:
            self._watch("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._unwatch()
        if self._taking is not None:
            self._taking.cancel()
        super().connection_lost(exc)
        for tell in self._tell:
            tell()

    def data_received(self, data: bytes) -> None:
        if self._tell:
            self.transport.abort()  # on a stream's connection there is nothing more to ask
            return
        complete = self._complete
        super().data_received(data)
        if not self._arriving:
            self._unwatch()
        elif self._timed != self._arriving and not self.transport.is_closing():
            self._watch(self._arriving)
        if self._arriving == "head" and complete == self._complete:
            self._head_bytes += len(data)  # all of these bytes are of this head
            if self._head_bytes > self._guard.settings.head_bytes_max:
                self._refuse(self._too_large())

    def handle_websocket_upgrade(self) -> None:
        self._arriving = ""
        self._unwatch()
        super().handle_websocket_upgrade()

    # ------------------------------------------------------------------------------------ a request arrives

    def on_message_begin(self) -> None:
        self._arriving, self._head_bytes = "head", 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._arriving = "body"
        size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])
        if size > self._guard.settings.head_bytes_max:
            self._why = self._too_large()
            raise ValueError("too large")  # ends the parser, which ends in `send_400_response`
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving, self._complete = "", self._complete + 1
        super().on_message_complete()

    def _too_large(self) -> Reply:
        says = f"a head of more than {self._guard.settings.head_bytes_max} bytes"
        return no(Refused("SEC-001", says, name="TooLarge"), status=HEAD_TOO_LARGE)

    # ------------------------------------------------------------------------------------ an answer is taken

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_taking()

    def _watch_taking(self) -> None:
        """What waits to be taken keeps its memory and its connection, also a closed one: not for ever."""
        if self._taking is not None:
            self._taking.cancel()
        left = self._untaken()
        slow_s = self._guard.settings.slow_ms / 1000
        self._taking = self.loop.call_later(slow_s, self._look_taken, left) if left and not self._is_lost else None

    def _look_taken(self, left: int) -> None:
        if self._untaken() < left:
            self._watch_taking()
            return
        self._guard.tally.dropped["slow"] += 1
        self.transport.abort()

    def _untaken(self) -> int:
        """Below TLS there is a second buffer, which its transport does not count."""
        below = getattr(getattr(self.transport, "_ssl_protocol", None), "_transport", None)
        return self.transport.get_write_buffer_size() + (below.get_write_buffer_size() if below is not None else 0)

    # ------------------------------------------------------------------------------------ refusing

    def send_400_response(self, msg: str) -> None:
        self._refuse(
            self._why or no(Refused("RPC-001", "this is not HTTP/1.1", name="InvalidRequest"), status=BAD_REQUEST)
        )

    def _refuse(self, reply: Reply) -> None:
        self._unwatch()
        self._guard.tally.refusals["connection"] += 1
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # in the middle of an answer there is no place for another
            return
        self.transport.write(as_bytes(reply, self.server_state.default_headers))
        self.transport.close()
        self._watch_taking()

    def _watch(self, part: str) -> None:
        self._unwatch()
        settings = self._guard.settings
        ms = settings.head_ms if part == "head" else settings.body_ms
        self._timed, self._timer = part, self.loop.call_later(ms / 1000, self._late, part, ms)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timed = None, ""

    def _late(self, part: str, ms: int) -> None:
        says = f"the request's {part} did not arrive within {ms} ms"
        self._guard.tally.dropped["late"] += 1
        self._refuse(no(Refused("SEC-001", says, "send it in one piece", "InvalidRequest"), status=TOO_LATE))


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state | {"wire": self}, _loop)
        self._tell: list[Callable[[], None]] = []
        self._linger: asyncio.TimerHandle | None = None

    def on_lost(self, tell: Callable[[], None]) -> None:
        self._tell.append(tell)
        if self.disconnected:
            tell()

    async def can_send(self, within_s: float) -> bool:
        return self.writable.is_set() or await _within(self.writable.wait(), within_s)

    def abort(self) -> None:
        self.transport.abort()

    def hang_up(self, code: int, reason: str) -> None:
        """Say why, behind all that the client has not taken yet, and give it a moment to take it."""
        if not self.close_sent and not self.transport.is_closing():
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self._linger = self.loop.call_later(LINGER_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        super().connection_lost(exc)
        for tell in self._tell:
            tell()


async def _within(ready: Any, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await ready
    except TimeoutError:
        return False
    return True
