"""The front process: accepts connections within their limits and forwards their bytes, untouched (SEC-002).

A connection costs the node a descriptor only after its first bytes: a whole HTTP/2 preface or TLS record. Its limits
are those of `ConnectionPlaces`; the node says which clients have shown a key. Everything else, from TLS to idle
connections, is the business of the gRPC server behind it.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Final

import msgspec

from holdfast.api.front.opening import Opening, check_opening
from holdfast.api.front.peer_name import ForwardedPeer, socket_name
from holdfast.api.front.settings import ConnectionProven, FrontCounts, FrontMessage, FrontSettings
from holdfast.api.limits.addresses import client_of
from holdfast.api.limits.places import RESERVED_PART, ConnectionPlace, ConnectionPlaces
from holdfast.core.base.errors import Refused
from holdfast.system.descriptors import raise_descriptor_limit
from holdfast.system.listening import serve_on

BUFFER_BYTES: Final = 256 << 10
"""Of each direction: a sender whose receiver does not read waits."""
LINGER_S: Final = 10.0
"""How long a client may take to read what was sent before its connection ended."""
REPORT_S: Final = 1.0
OWN_DESCRIPTORS: Final = 64
"""Of the process itself; each connection needs two more."""
MESSAGE_BYTES_MAX: Final = 4_096
_decode: Final = msgspec.json.Decoder(FrontMessage).decode


def run_front(pipe: Connection, settings: FrontSettings) -> None:
    """Forward until the node is gone. The pipe brings the listening socket, and the one for messages."""
    listener, control = (socket.socket(fileno=recv_handle(pipe)) for _ in range(2))
    limit = raise_descriptor_limit(2 * settings.connections_max + OWN_DESCRIPTORS)
    places_max = max(1, min(settings.connections_max, (limit - OWN_DESCRIPTORS) // 2))
    asyncio.run(Forwarder(settings, places_max).run(listener, control))


class Forwarder:
    """All connections of the process."""

    def __init__(self, settings: FrontSettings, places_max: int) -> None:
        self.settings = settings
        self.places = ConnectionPlaces(
            places_max=places_max,
            address_max=settings.address_connections_max,
            key_max=settings.key_connections_max,
            reserved=places_max // RESERVED_PART,
        )
        self.counts: Counter[str] = Counter()
        self.clients: set[ClientSide] = set()
        self.forwarded: dict[int, ClientSide] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self._token, self._numbers = secrets.token_hex(4), 0
        self._ended = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def run(self, listener: socket.socket, control: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        control.setblocking(False)
        loop.add_reader(control, self._on_message, control)
        self._server = await serve_on(listener, lambda: ClientSide(self))
        await self._report_until_ended(control)
        self._server.close()
        for client in list(self.clients):
            client.abort()
        await asyncio.gather(*self.tasks)

    async def _report_until_ended(self, control: socket.socket) -> None:
        reported = FrontCounts()
        while not self._ended.is_set():
            if (counts := self._counts_now()) != reported:
                reported = counts
                with suppress(OSError):  # the node is busy: the next report says the same
                    control.send(msgspec.json.encode(counts))
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._ended.wait()

    def _on_message(self, control: socket.socket) -> None:
        try:
            raw = control.recv(MESSAGE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            raw = b""
        if not raw:  # the node is gone
            asyncio.get_running_loop().remove_reader(control)
            self._ended.set()
            return
        message = _decode(raw)
        if isinstance(message, ConnectionProven):
            client = self.forwarded.get(message.number)
            if client is not None and client.place is not None:
                client.place.on_key(message.key)
        elif self._server is not None:
            self._server.close()

    def _counts_now(self) -> FrontCounts:
        proven = sum(client.place is not None and bool(client.place.key) for client in self.forwarded.values())
        return FrontCounts(
            silent=len(self.places) - len(self.forwarded),
            forwarded=len(self.forwarded),
            proven=proven,
            **{name: self.counts[name] for name in ("full", "displaced", "late", "foreign", "upstream_failed")},
        )

    def next_peer(self, address: str) -> ForwardedPeer:
        self._numbers += 1
        return ForwardedPeer(self._numbers, address)

    async def connect(self, client: ClientSide, peer: ForwardedPeer) -> NodeSide:
        """A connection to the node whose name says for whom it is."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind(socket_name(self._token, peer))
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, str(self.settings.upstream))
            _, node = await loop.create_unix_connection(lambda: NodeSide(client), sock=sock)
        except BaseException:
            sock.close()
            raise
        return node


_received: Final = memoryview(bytearray(BUFFER_BYTES))
"""What was just read of any connection: a buffer for each read would leave the memory in pieces."""


class _Side(asyncio.BufferedProtocol):
    """One of the two connections; what it receives is written to the other one."""

    transport: asyncio.Transport | None = None
    other: _Side | None = None

    def get_buffer(self, _: int) -> memoryview:
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        self.forward(bytes(_received[:nbytes]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def forward(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None:
            self.other.end()

    def end(self) -> None:
        """Send what is left, then close."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            asyncio.get_running_loop().call_later(LINGER_S, self.transport.abort)


class NodeSide(_Side):
    """The connection to the node."""

    def __init__(self, client: ClientSide) -> None:
        self.other = client


class ClientSide(_Side):
    """The connection of a client: it has a place, and is forwarded once its first bytes are complete."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder, self._head, self._number = forwarder, b"", 0
        self.place: ConnectionPlace | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._forwarder.clients.add(self)
        name = transport.get_extra_info("peername")
        self._address = str(name[0]) if name else ""
        place = self._forwarder.places.enter(client_of(self._address), lambda: self._drop("displaced"))
        if isinstance(place, Refused):
            self._drop("full")
            return
        self.place = place
        opening_s = self._forwarder.settings.opening_ms / 1_000
        self._timer = asyncio.get_running_loop().call_later(opening_s, self._drop, "late")

    def forward(self, data: bytes) -> None:
        if self.other is not None:
            super().forward(data)
            return
        self._head += data
        opening = check_opening(self._head, is_tls=self._forwarder.settings.is_tls)
        if opening is Opening.FOREIGN:
            self._drop("foreign")
        elif opening is Opening.COMPLETE and self.transport is not None:
            self._stop_timer()
            self.transport.pause_reading()  # until the node's side is there
            task = asyncio.create_task(self._connect())
            self._forwarder.tasks.add(task)
            task.add_done_callback(self._forwarder.tasks.discard)

    async def _connect(self) -> None:
        peer = self._forwarder.next_peer(self._address)
        try:
            node = await self._forwarder.connect(self, peer)
        except OSError:  # the node is stopping, or has as many connections as it accepts
            self._drop("upstream_failed")
            return
        if self.transport is None or self.transport.is_closing():
            node.end()
            return
        self.other, self._number = node, peer.number
        self._forwarder.forwarded[peer.number] = self
        head, self._head = self._head, b""
        super().forward(head)
        self.transport.resume_reading()

    def connection_lost(self, fault: Exception | None) -> None:
        self._stop_timer()
        self._forwarder.clients.discard(self)
        if self.place is not None:
            self.place.leave()
        self._forwarder.forwarded.pop(self._number, None)
        super().connection_lost(fault)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, reason: str) -> None:
        self._forwarder.counts[reason] += 1
        self.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
