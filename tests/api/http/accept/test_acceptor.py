"""Connections before they are HTTP (SEC-002): what says nothing, or too little, costs an accept and a place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import msgspec
import pytest
from tests.api.grpc.grpc_server import tls_folder
from tests.api.http.http_node import WITHIN_S, HttpNode, http_node, request, response_on, until

from holdfast.api.front.opening import Opening
from holdfast.api.http.accept import acceptor as acceptor_module
from holdfast.api.http.accept.acceptor import ACCEPTS_PER_TURN, OTHERS_TIMES, Acceptor
from holdfast.api.http.accept.first_head import check_head
from holdfast.api.http.connection import GuardedHttp
from holdfast.api.limits.places import ConnectionPlace, Share

pytestmark = pytest.mark.rule("SEC-002")
STATUS = json.dumps(request("node.getStatus")).encode()
HEAD = b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(STATUS)
CROWD = 3 * ACCEPTS_PER_TURN
TURNS = 50
"""Turns of the loop: more than anything here needs."""


def acceptor_of(node: HttpNode) -> Acceptor:
    assert node.server._server is not None
    (found,) = node.server._server.servers
    return found


def protocols_of(node: HttpNode) -> int:
    assert node.server._server is not None
    return len(node.server._server.server_state.connections)


@contextmanager
def crowd_of(node: HttpNode, size: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that are there at once, before the loop has seen one of them."""
    with ExitStack() as opened:
        sockets = []
        for _ in range(size):
            sock = opened.enter_context(socket.create_connection(("127.0.0.1", node.server.port)))
            sock.sendall(said)
            sockets.append(sock)
        yield sockets


async def wait_ended(reader: asyncio.StreamReader) -> None:
    """The connection is over without an answer; bytes that nobody read make its end a reset."""
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""


async def pass_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------------ the first bytes


@pytest.mark.parametrize(
    ("first", "opening"),
    [
        (b"", Opening.INCOMPLETE),
        (b"\r\n", Opening.INCOMPLETE),
        (b"P", Opening.INCOMPLETE),
        (b"GET / HTTP/1.1\r\nhost: x\r\n", Opening.INCOMPLETE),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r", Opening.INCOMPLETE),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", Opening.COMPLETE),
        (b"\r\nGET / HTTP/1.1\r\n\r\n", Opening.COMPLETE),
        (b"GET / HTTP/1.1\n\n", Opening.COMPLETE),
        (b"GET / HTTP/1.1\nhost: x\n\r\n", Opening.COMPLETE),
        (b"\x16\x03\x01", Opening.FOREIGN),
        (b"get / HTTP/1.1", Opening.FOREIGN),
        (b"\r\n{}", Opening.FOREIGN),
    ],
)
def test_a_head_is_complete_with_its_empty_line(first: bytes, opening: Opening) -> None:
    assert check_head(first) is opening


@pytest.mark.parametrize("said", [b"", b"P", HEAD[:-1]])
async def test_a_socket_that_has_not_sent_a_head_has_a_place_and_no_protocol(said: bytes) -> None:
    async with http_node() as node:
        with crowd_of(node, 5, said):
            await until(lambda: node.server.metrics.connections() == 5)
            await until(lambda: [each.seen for each in acceptor_of(node).held] == [len(said)] * 5)
            assert protocols_of(node) == 0
        await until(lambda: node.server.metrics.connections() == 0)
        assert not acceptor_of(node).held


async def test_what_has_come_is_looked_at_once() -> None:
    """Else a byte that waits would wake the loop again and again."""
    async with http_node() as node:
        looks = count(1)
        looked = 0
        inner = acceptor_of(node)
        check = check_head

        def counting(first: bytes) -> Opening:
            nonlocal looked
            looked = next(looks)
            return check(first)

        with pytest.MonkeyPatch.context() as patch, crowd_of(node, 1, b"P") as (sock,):
            patch.setattr(acceptor_module, "check_head", counting)
            await until(lambda: inner.held)
            await until(lambda: looked)
            await pass_turns()
            assert looked == 1
            sock.sendall(b"O")
            await until(lambda: looked == 2)
            await pass_turns()
            assert looked == 2


@pytest.mark.parametrize("parts", [[HEAD + STATUS], [b"", HEAD + STATUS], [HEAD[:1], HEAD[1:-1], HEAD[-1:] + STATUS]])
async def test_a_client_whose_first_bytes_come_late_is_served(parts: list[bytes]) -> None:
    async with http_node() as node, node.raw_connection() as (reader, writer):
        await until(lambda: acceptor_of(node).held)
        seen = 0
        for part in parts[:-1]:
            writer.write(part)
            seen += len(part)
            await until(lambda seen=seen: [each.seen for each in acceptor_of(node).held] == [seen])
        writer.write(parts[-1])
        assert (await response_on(reader))[0] == 200
        assert node.server._server is not None
        (connection,) = node.server._server.server_state.connections
        writer.write(HEAD[:1])
        await until(lambda: connection._arriving == "head")  # type: ignore[union-attr]  # one byte is read at once
        writer.write(HEAD[1:] + STATUS)
        assert (await response_on(reader))[0] == 200
        assert not acceptor_of(node).held


async def test_half_a_head_and_its_end_is_dropped() -> None:
    async with http_node() as node, node.raw_connection(b"POST") as (reader, writer):
        await until(lambda: acceptor_of(node).held)
        writer.write_eof()
        await wait_ended(reader)
        assert node.server.metrics.connections() == 0


async def test_silent_sockets_are_closed_in_their_time_and_speakers_stay() -> None:
    async with http_node(head_ms=60) as node, node.raw_connection(HEAD + STATUS) as (reader, writer):
        assert (await response_on(reader))[0] == 200
        with crowd_of(node, 3) as silent:
            await until(lambda: node.server.metrics.disconnected["late"] == 3)
            assert [sock.recv(16).startswith(b"HTTP/1.1 408") for sock in silent] == [True] * 3
        assert (protocols_of(node), node.server.metrics.connections()) == (1, 1)
        writer.write(HEAD + STATUS)
        assert (await response_on(reader))[0] == 200


async def test_a_head_has_the_time_that_its_silence_has_left() -> None:
    async with http_node(head_ms=1_000_000) as node, node.raw_connection() as (reader, writer):
        acceptor, told = acceptor_of(node), []
        make = acceptor._options.make_protocol

        def noting(place: ConnectionPlace, head_s: float) -> GuardedHttp:
            told.append(head_s)
            return make(place, head_s)

        acceptor._options = msgspec.structs.replace(acceptor._options, make_protocol=noting)
        await until(lambda: acceptor.held)
        (held,) = acceptor.held
        held.until_s -= 600.0  # as if it had been silent for this long
        writer.write(HEAD + STATUS)
        assert (await response_on(reader))[0] == 200
        assert [300.0 < head_s <= 400.0 for head_s in told] == [True]


# ------------------------------------------------------------------------------------------------ places


async def test_silent_sockets_have_the_share_of_their_address() -> None:
    async with http_node(connections_max=16, address_connections_max=4) as node:
        token = await node.token()
        with crowd_of(node, 12) as silent:
            held = acceptor_of(node).held
            await until(lambda: node.server.metrics.disconnected["displaced"] == 4)
            shares = [each.place.share for each in held]
            assert shares == [Share.ANONYMOUS] * 4 + [Share.PROBATION] * 4
            assert [sock.recv(1) for sock in silent[4:8]] == [b""] * 4, "the oldest on probation"
            assert (await node.call("node.getStatus", token)).status_code == 200
            assert protocols_of(node) <= 1


async def test_a_place_is_given_up_when_its_socket_is() -> None:
    async with http_node(connections_max=2, address_connections_max=2) as node:
        for said in (b"", b"P", b"\x16"):
            with crowd_of(node, 2, said):
                await until(lambda: node.server.metrics.connections() == 2 or node.server.metrics.refusals)
            await until(lambda: node.server.metrics.connections() == 0)
        assert (await node.call("node.getStatus")).status_code == 200


# ------------------------------------------------------------------------------------------------ the loop's time


@asynccontextmanager
async def paced_node(step_s: float) -> AsyncIterator[HttpNode]:
    """Its acceptor believes that each of its turns takes this long."""
    async with http_node(address_connections_max=1_000) as node:
        steps = count(0.0, step_s)
        acceptor_of(node)._clock = lambda: next(steps)
        yield node


async def test_accepting_has_a_share_of_the_loops_time() -> None:
    async with paced_node(step_s=1_000.0) as node, node.raw_connection(HEAD + STATUS) as (reader, writer):
        assert (await response_on(reader))[0] == 200
        with crowd_of(node, CROWD):
            held = acceptor_of(node).held
            for accepted in range(ACCEPTS_PER_TURN, CROWD, ACCEPTS_PER_TURN):
                await until(lambda: acceptor_of(node)._pause)
                writer.write(HEAD + STATUS)
                assert (await response_on(reader))[0] == 200, "who is connected is served meanwhile"
                await pass_turns()
                assert len(held) == accepted, "and nobody else is accepted"
                pause = acceptor_of(node)._pause
                assert pause is not None
                assert pause.when() - asyncio.get_running_loop().time() > (OTHERS_TIMES - 1) * 1_000.0
                pause._run()  # its time has come
                pause.cancel()
            await until(lambda: len(held) == CROWD)


async def test_where_nobody_waits_accepting_does_not_pause() -> None:
    async with paced_node(step_s=1_000.0) as node:
        for _ in range(2 * ACCEPTS_PER_TURN):
            async with node.raw_connection(HEAD + STATUS) as (reader, _):
                assert (await response_on(reader))[0] == 200
            assert acceptor_of(node)._pause is None


async def test_without_descriptors_the_acceptor_waits_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_node() as node:
        acceptor = acceptor_of(node)

        class Failing:
            fileno = acceptor._listener.fileno

            def accept(self) -> None:
                raise OSError(24, "Too many open files")

        real = acceptor._listener
        monkeypatch.setattr(acceptor, "_listener", Failing())
        async with node.raw_connection(HEAD + STATUS) as (reader, _):
            await until(lambda: acceptor._pause)
            monkeypatch.setattr(acceptor, "_listener", real)
            pause = acceptor._pause
            assert pause is not None
            pause._run()  # its time has come
            pause.cancel()
            assert (await response_on(reader))[0] == 200


# ------------------------------------------------------------------------------------------------ the end, TLS


async def test_a_server_that_closes_ends_silent_sockets() -> None:
    async with http_node() as node, node.raw_connection(b"P") as (reader, _):
        await until(lambda: acceptor_of(node).held)
        await node.server.close()
        await wait_ended(reader)


async def test_over_tls_a_hello_makes_a_connection_and_less_does_not(tmp_path: Path) -> None:
    tls = tls_folder(tmp_path)
    async with http_node(certificate=tls.certificate, key=tls.key) as node:
        with crowd_of(node, 3, b"\x16\x03\x01\x01\x00") as partial, crowd_of(node, 1, b"GET /") as plain:
            await until(lambda: len(acceptor_of(node).held) == 3)
            with pytest.raises(ConnectionResetError):
                plain[0].recv(1)
            trusted = ssl.create_default_context(cafile=str(tls.ca_certificate))
            reader, writer = await asyncio.open_connection("localhost", node.server.port, ssl=trusted)
            writer.write(HEAD + STATUS)
            assert (await response_on(reader))[0] == 200
            assert (protocols_of(node), len(acceptor_of(node).held)) == (1, 3)
            writer.close()
            assert len(partial) == 3


async def test_a_failed_handshake_gives_its_place_back(tmp_path: Path) -> None:
    tls = tls_folder(tmp_path)
    async with http_node(certificate=tls.certificate, key=tls.key) as node:
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", node.server.port, ssl=ssl.create_default_context())
        await until(lambda: node.server.metrics.connections() == 0)
        with crowd_of(node, 2, b"\x16\x03\x01\x00\x01\x00"):
            await until(lambda: node.server.metrics.connections() == 2)
            await until(lambda: node.server.metrics.connections() == 0)
