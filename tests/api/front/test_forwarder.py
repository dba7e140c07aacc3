"""The front process of gRPC: limits of connections, bytes both ways, places for those with a key (SEC-002)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.grpc.agent_driver import until
from tests.api.grpc.grpc_server import Echo, connected_channel, grpc_server, say, tls_folder

from holdfast.api.front.forwarder import Forwarder
from holdfast.api.front.opening import PREFACE
from holdfast.api.front.settings import ConnectionProven, FrontCounts, FrontSettings, StopListening
from holdfast.api.grpc.server import GrpcServer
from holdfast.system.listening import listen_on

pytestmark = pytest.mark.rule("SEC-002")
WITHIN_S = 20.0
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Upstream:
    """Echoes what it is sent, and knows who is behind its connections."""

    def __init__(self) -> None:
        self.peers: list[bytes] = []
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(writer.get_extra_info("peername"))
        self.open += 1
        with suppress(ConnectionError):
            while raw := await reader.read(65_536):
                writer.write(raw)
                await writer.drain()
        writer.close()
        self.open -= 1


class Front:
    """A forwarder in this process, its port and the node's end of its messages."""

    def __init__(self, port: int, control: socket.socket, forwarder: Forwarder, upstream: Upstream) -> None:
        self.port, self.control, self.forwarder, self.upstream = port, control, forwarder, upstream
        self._lines: list[Line] = []

    async def line(self, said: bytes = b"") -> Line:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._lines.append((reader, writer))
        writer.write(said)
        return reader, writer

    async def close(self) -> None:
        self.control.close()
        for _, writer in self._lines:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def tell(self, message: object) -> None:
        self.control.send(msgspec.json.encode(message))


@asynccontextmanager
async def front(folder: Path, places_max: int = 8, **told: Any) -> AsyncIterator[Front]:
    upstream = Upstream()
    path = folder / "up"
    node = await asyncio.start_unix_server(upstream.serve, path)
    limits = {"address_connections_max": 100, "key_connections_max": 2, "opening_ms": 60_000, "is_tls": False}
    settings = FrontSettings(connections_max=places_max, **({"upstream": path} | limits | told))
    listener = listen_on("127.0.0.1", 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    forwarder = Forwarder(settings, places_max)
    running = asyncio.create_task(forwarder.run(listener, theirs))
    made = Front(listener.getsockname()[1], ours, forwarder, upstream)
    try:
        yield made
    finally:
        await made.close()
        async with asyncio.timeout(WITHIN_S):
            await running  # it ends when the node is gone
        theirs.close()
        await until(lambda: not upstream.open)
        node.close()


async def echoed(line: Line, size: int) -> bytes:
    async with asyncio.timeout(WITHIN_S):
        return await line[0].readexactly(size)


async def is_closed(line: Line) -> bool:
    async with asyncio.timeout(WITHIN_S):
        try:
            return await line[0].read(1) == b""
        except ConnectionError:
            return True


async def test_bytes_pass_untouched_both_ways_and_the_node_knows_the_address(tmp_path: Path) -> None:
    async with front(tmp_path) as at:
        line = await at.line(PREFACE[:7])
        line[1].write(PREFACE[7:])
        assert await echoed(line, len(PREFACE)) == PREFACE
        big = os.urandom(2 << 20)  # more than all buffers hold: nobody reads while it is written
        writing = asyncio.create_task(_write(line, big))
        assert await echoed(line, len(big)) == big
        await writing
    assert at.upstream.peers[0].endswith(b"/1/127.0.0.1")


async def _write(line: Line, raw: bytes) -> None:
    line[1].write(raw)
    await line[1].drain()


async def test_a_connection_reaches_the_node_only_with_its_first_bytes(tmp_path: Path) -> None:
    async with front(tmp_path) as at:
        silent = [await at.line() for _ in range(3)]
        half, foreign = await at.line(PREFACE[:10]), await at.line(b"GET / HTTP/1.1\r\n\r\n")
        assert await is_closed(foreign)
        await echoed(await at.line(PREFACE), len(PREFACE))
        assert len(at.upstream.peers) == 1
        assert not any(each[0].at_eof() for each in (*silent, half))


async def test_a_client_that_says_nothing_in_time_is_closed(tmp_path: Path) -> None:
    async with front(tmp_path, opening_ms=50) as at:
        spoken = await at.line(PREFACE)
        await echoed(spoken, len(PREFACE))
        assert await is_closed(await at.line(PREFACE[:10]))
        assert at.forwarder.counts["late"] == 1
        spoken[1].write(b"still here")
        assert await echoed(spoken, 10) == b"still here"


async def test_who_has_shown_a_key_keeps_its_place_while_a_crowd_comes_and_goes(tmp_path: Path) -> None:
    """Of eight places two are reserved; each newcomer of a full address takes the place of an older one."""
    async with front(tmp_path, address_connections_max=1) as at:
        crowd = [await at.line(PREFACE) for _ in range(3)]
        honest = await at.line(PREFACE)
        await echoed(honest, len(PREFACE))
        number = max(at.forwarder.forwarded)
        at.tell(ConnectionProven(number, "k"))
        await until(lambda: at.forwarder.forwarded[number].place.key == "k")  # type: ignore[union-attr]
        for _ in range(20):
            await at.line(PREFACE)
        await until(lambda: at.forwarder.counts["displaced"] >= 20)
        honest[1].write(b"still here")
        assert await echoed(honest, 10) == b"still here"
        assert await is_closed(crowd[1])
        assert len(at.forwarder.places) <= 8


async def test_a_full_front_refuses_and_a_place_is_free_when_its_client_leaves(tmp_path: Path) -> None:
    async with front(tmp_path, places_max=1) as at:
        first = await at.line(PREFACE)
        await echoed(first, len(PREFACE))
        assert await is_closed(await at.line(PREFACE))
        assert at.forwarder.counts["full"] == 1
        first[1].close()
        await until(lambda: len(at.forwarder.places) == 0)
        await echoed(await at.line(PREFACE), len(PREFACE))


async def test_who_does_not_read_is_not_read_from(tmp_path: Path) -> None:
    async with front(tmp_path) as at:
        await echoed(await at.line(PREFACE), len(PREFACE))
        client = at.forwarder.forwarded[1]
        for side, other in ((client, client.other), (client.other, client)):
            assert side is not None
            assert other is not None
            assert other.transport is not None
            side.pause_writing()
            assert not other.transport.is_reading()
            side.resume_writing()
            assert other.transport.is_reading()


async def test_connections_read_into_one_buffer_and_what_one_forwarded_stays(tmp_path: Path) -> None:
    async with front(tmp_path) as served:
        lines = [await served.line(PREFACE) for _ in range(2)]
        for reader, _ in lines:
            await reader.readexactly(len(PREFACE))
        one, another = served.forwarder.forwarded.values()
        buffer, kept = one.get_buffer(-1), Kept()
        assert another.get_buffer(-1).obj is buffer.obj
        assert one.other is not None
        real, one.other.transport = one.other.transport, kept  # type: ignore[assignment]
        for said in (b"first", b"other"):
            buffer[: len(said)] = said
            one.buffer_updated(len(said))
        one.other.transport = real
        assert kept.written == [b"first", b"other"]


class Kept:
    """A transport that keeps what is written, as one does whose receiver does not read."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


async def test_a_client_whose_node_is_away_is_disconnected(tmp_path: Path) -> None:
    async with front(tmp_path, upstream=tmp_path / "nobody") as at:
        assert await is_closed(await at.line(PREFACE))
        assert at.forwarder.counts["upstream_failed"] == 1


async def test_told_to_stop_it_accepts_nobody_and_goes_on_forwarding(tmp_path: Path) -> None:
    async with front(tmp_path) as at:
        line = await at.line(PREFACE)
        await echoed(line, len(PREFACE))
        at.tell(StopListening())
        await until(lambda: at.forwarder._server is None or not at.forwarder._server.is_serving())
        line[1].write(b"still here")
        assert await echoed(line, 10) == b"still here"
        with pytest.raises(ConnectionRefusedError):
            await at.line()


async def test_the_node_is_told_how_many_there_are(tmp_path: Path) -> None:
    async with front(tmp_path) as at:
        await at.line()
        await echoed(await at.line(PREFACE), len(PREFACE))
        await is_closed(await at.line(b"nonsense"))
        at.control.settimeout(WITHIN_S)
        seen = FrontCounts()
        while seen != FrontCounts(silent=1, forwarded=1, foreign=1):
            seen = msgspec.json.decode(await asyncio.to_thread(at.control.recv, 4_096), type=FrontCounts)


# ------------------------------------------------------------------------------------------------ in its own process


@asynccontextmanager
async def fronted(folder: Path, **told: Any) -> AsyncIterator[GrpcServer]:
    async with grpc_server(front_socket=folder / "a b%c.grpc", **told) as server:
        yield server


async def test_calls_over_tls_pass_and_their_key_is_noted(tmp_path: Path) -> None:
    tls = tls_folder(tmp_path / "tls")
    async with fronted(tmp_path, tls=tls) as server, connected_channel(server, tls.ca_certificate) as channel:
        assert await say(channel, "hi", "alice") == "(None, 'alice'): hi"
        assert server.front is not None
        process = server.front.process
        await until(lambda: process.counts.proven == 1)
        assert process.process_id != os.getpid()


async def test_a_front_process_that_dies_is_replaced_and_nobody_is_refused(tmp_path: Path) -> None:
    echo = Echo()
    async with fronted(tmp_path, echo=echo) as server:
        assert server.front is not None
        process = server.front.process
        async with connected_channel(server) as channel:
            assert await say(channel, "before") == "(None, None): before"
        assert process.process_id is not None
        os.kill(process.process_id, signal.SIGKILL)
        await until(lambda: process.process_id is None)
        async with connected_channel(server) as channel:  # it waits in the queue of the listening socket
            assert await say(channel, "after") == "(None, None): after"
        assert process.restarts == 1


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path) -> Any:
    yield
    assert list(tmp_path.glob("*.grpc")) == [], "the socket behind the front is removed"
