"""The limits of a connection (SEC-001): how long a head may take, how slow a client may read.

How many there may be, and what happens before the first head, is in `accept`.

uvicorn parses and answers; it has no limits on heads, on their time or on how long a client reads nothing. These two
classes add them, and tell a stream what ASGI does not: whether the client is still connected and reads what is sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from holdfast.api.http.responses import (
    BAD_REQUEST,
    HEAD_TOO_LARGE,
    REQUEST_TIMEOUT,
    Response,
    as_bytes,
    refusal_response,
)
from holdfast.api.http.settings import HttpSettings
from holdfast.api.limits.addresses import Network, client_of, is_in, parse_networks
from holdfast.api.limits.places import RESERVED_PART, ConnectionPlace, ConnectionPlaces
from holdfast.core.base.errors import Refused

CLOSE_LINGER_S = 5.0
"""How long a disconnected client may read what was sent before, the reason included."""


class ClientConnection(Protocol):
    """What a stream needs to know of its connection."""

    place: ConnectionPlace | None

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the client is gone; at once where it is gone already."""
        ...

    async def can_send(self, within_s: float) -> bool:
        """Whether the client has read enough to be sent more, or does so within this time."""
        ...

    def abort(self) -> None:
        """Close at once, without an answer."""
        ...


class ConnectionCounts(Protocol):
    """What counts the violations of a limit."""

    refusals: Counter[str]
    disconnected: Counter[str]


class ConnectionGuard(msgspec.Struct, frozen=True):
    """The limits of a server's connections, and what counts their violations."""

    settings: HttpSettings
    metrics: ConnectionCounts
    places: ConnectionPlaces
    proxies: tuple[Network, ...] = ()


def make_guard(settings: HttpSettings, metrics: ConnectionCounts) -> ConnectionGuard:
    is_shared = settings.address_connections_max < settings.connections_max
    places = ConnectionPlaces(
        places_max=settings.connections_max,
        address_max=settings.address_connections_max,
        key_max=settings.key_connections_max,
        reserved=settings.connections_max // RESERVED_PART if is_shared else 0,
    )
    return ConnectionGuard(settings, metrics, places, parse_networks(settings.trusted_proxies))


def enter_place(guard: ConnectionGuard, address: str, close: Callable[[], None]) -> ConnectionPlace | Refused:
    """A place for a new connection of this address, or why there is none."""
    return guard.places.enter(client_of(address), close, is_proxy=is_in(address, guard.proxies))


def late_response(part: str, ms: int) -> Response:
    message = f"the request's {part} did not arrive within {ms} ms"
    refusal = Refused("SEC-001", message, "send it in one piece", "InvalidRequest")
    return refusal_response(refusal, status=REQUEST_TIMEOUT)


NOT_HTTP = refusal_response(Refused("RPC-001", "this is not HTTP/1.1", name="InvalidRequest"), status=BAD_REQUEST)


class GuardedHttp(HttpToolsProtocol):
    """A connection that speaks HTTP/1.1."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        place: ConnectionPlace,
        head_s: float,
    ) -> None:
        """With its place, and the seconds that its first head may take from now on."""
        super().__init__(config, server_state, app_state | {"connection": self}, _loop)
        self._guard: ConnectionGuard = app_state["guard"]
        self._first_head_s = head_s
        self._lost_callbacks: list[Callable[[], None]] = []
        self._is_lost = False
        self._arriving = ""
        """The part of a request that has begun and not ended: head, body or none."""
        self._timer: asyncio.TimerHandle | None = None
        self._timed = ""
        self._reader_timer: asyncio.TimerHandle | None = None
        self._head_bytes = self._complete = 0
        self._refusal: Response | None = None
        self.place: ConnectionPlace | None = place

    # ------------------------------------------------------------------------------------ ClientConnection

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._lost_callbacks.append(callback)
        self.flow.resume_reading()  # pipelined requests have paused it; paused, we would not notice the client leave
        if self._is_lost:
            callback()

    async def can_send(self, within_s: float) -> bool:
        if not self.flow.write_paused or self._is_lost:
            return True
        return await _is_ready_within(self.flow.drain(), within_s)

    def abort(self) -> None:
        self.transport.abort()

    # ------------------------------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self._guard.settings.send_bytes_max)
        assert self.place is not None
        self.place.close = self._displace
        self._watch("head", self._first_head_s)

    def _displace(self) -> None:
        """A newer connection needs the place."""
        self._guard.metrics.disconnected["displaced"] += 1
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self.place is not None:
            self.place.leave()
        self._unwatch()
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        super().connection_lost(exc)
        for callback in self._lost_callbacks:
            callback()

    def data_received(self, data: bytes) -> None:
        if self._lost_callbacks:
            self.transport.abort()  # a connection with a stream takes no more requests
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
            self._refusal = self._too_large()
            raise ValueError("too large")  # ends the parser, which ends in `send_400_response`
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving, self._complete = "", self._complete + 1
        super().on_message_complete()

    def _too_large(self) -> Response:
        message = f"a head of more than {self._guard.settings.head_bytes_max} bytes"
        return refusal_response(Refused("SEC-001", message, name="TooLarge"), status=HEAD_TOO_LARGE)

    # ------------------------------------------------------------------------------------ a response is read

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_reader()
        if self.place is not None and self.place.is_on_probation:
            self.transport.close()  # it was answered, and has shown no key

    def _watch_reader(self) -> None:
        """What waits to be read keeps memory and the connection, even a closing one: not for ever."""
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        left = self._unread()
        slow_s = self._guard.settings.slow_ms / 1000
        self._reader_timer = (
            self.loop.call_later(slow_s, self._check_reader, left) if left and not self._is_lost else None
        )

    def _check_reader(self, left: int) -> None:
        if self._unread() < left:
            self._watch_reader()
            return
        self._guard.metrics.disconnected["slow"] += 1
        self.transport.abort()

    def _unread(self) -> int:
        """Below TLS there is a second buffer, which its transport does not count."""
        below = getattr(getattr(self.transport, "_ssl_protocol", None), "_transport", None)
        return self.transport.get_write_buffer_size() + (below.get_write_buffer_size() if below is not None else 0)

    # ------------------------------------------------------------------------------------ refusing

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or NOT_HTTP)

    def _refuse(self, response: Response) -> None:
        self._unwatch()
        self._guard.metrics.refusals["connection"] += 1
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # another response cannot be sent in the middle of one
            return
        self.transport.write(as_bytes(response, self.server_state.default_headers))
        self.transport.close()
        self._watch_reader()

    def _watch(self, part: str, within_s: float | None = None) -> None:
        self._unwatch()
        settings = self._guard.settings
        ms = settings.head_ms if part == "head" else settings.body_ms
        within_s = ms / 1000 if within_s is None else within_s
        self._timed, self._timer = part, self.loop.call_later(within_s, self._late, part, ms)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timed = None, ""

    def _late(self, part: str, ms: int) -> None:
        self._guard.metrics.disconnected["late"] += 1
        self._refuse(late_response(part, ms))


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        before: GuardedHttp = app_state["connection"]
        super().__init__(config, server_state, app_state | {"connection": self}, _loop)
        self._lost_callbacks: list[Callable[[], None]] = []
        self._linger: asyncio.TimerHandle | None = None
        self.place = before.place

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._lost_callbacks.append(callback)
        if self.disconnected:
            callback()

    async def can_send(self, within_s: float) -> bool:
        return self.writable.is_set() or await _is_ready_within(self.writable.wait(), within_s)

    def abort(self) -> None:
        self.transport.abort()

    def hang_up(self, code: int, reason: str) -> None:
        """Send the reason, behind all that the client has not read yet, and give it a moment to read it."""
        if not self.close_sent and not self.transport.is_closing():
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self._linger = self.loop.call_later(CLOSE_LINGER_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        if self.place is not None:
            self.place.leave()
        super().connection_lost(exc)
        for callback in self._lost_callbacks:
            callback()


async def _is_ready_within(ready: Any, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await ready
    except TimeoutError:
        return False
    return True
