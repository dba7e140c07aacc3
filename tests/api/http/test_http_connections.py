"""Connections to the HTTP door that are slow, too many, half open or not HTTP; and TLS in both directions."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from tests.api.grpc.grpc_server import client_certificate, tls_folder
from tests.api.http.http_node import WITHIN_S, HttpNode, bearer, http_node, request, response_on, until

from holdfast.adapters.keys.authority import CertificateFiles
from holdfast.api.http.connection import GuardedHttp
from holdfast.api.http.server import HttpServer
from holdfast.api.http.settings import HttpSettings
from holdfast.api.http.tls import tls_context
from holdfast.api.http.uvicorn_server import listening_socket
from holdfast.api.node_access import NodeAccess
from holdfast.core.base.errors import Unavailable

pytestmark = pytest.mark.rule("SEC-001")
STATUS = json.dumps(request("node.getStatus")).encode()
HEAD = b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(STATUS)


async def is_open(house: HttpNode) -> bool:
    async with house.raw_connection(HEAD + STATUS) as (reader, _):
        return (await response_on(reader))[0] == 200


@asynccontextmanager
async def _non_reading_client(house: HttpNode, is_tls: bool) -> AsyncIterator[asyncio.StreamWriter]:
    """A client that sends and takes nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", house.server.port))
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    told: dict[str, Any] = {"ssl": trusting, "server_hostname": "localhost"} if is_tls else {}
    _, writer = await asyncio.open_connection(sock=sock, limit=1, **told)
    assert isinstance(writer.transport, asyncio.Transport)
    writer.transport.pause_reading()
    try:
        yield writer
    finally:
        writer.transport.abort()


# ------------------------------------------------------------------------------------------------ slow


@pytest.mark.parametrize("sent", [b"", b"POST /rpc HT", b"POST /rpc HTTP/1.1\r\nhost: x\r\nx-y:"])
async def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    async with http_node(head_ms=60) as house, house.raw_connection(sent) as (reader, _):
        status, headers, said = await response_on(reader)
        assert (status, headers["connection"], said["error"]["data"]["rule"]) == (408, "close", "SEC-001")
        assert "head" in said["error"]["message"]
        assert await reader.read() == b""
        assert await is_open(house)


async def test_a_head_that_comes_drop_by_drop_has_no_more_time_than_any_other() -> None:
    """A bare socket, which gives what has come also where the door has hung up over a sign that it did not read."""
    async with http_node(head_ms=150) as house:
        with socket.create_connection(("127.0.0.1", house.server.port), timeout=WITHIN_S) as sock:
            for sign in b"GET /healthz HTTP/1.1\r\n" + b"x-trickle: " + b"x" * 10_000:
                if house.server.metrics.disconnected["late"]:
                    break
                sock.send(bytes([sign]))
                await asyncio.sleep(0.005)
            assert sock.recv(65_536).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("is_tls", [False, True])
async def test_a_client_that_does_not_read_its_answer_is_disconnected(is_tls: bool, tmp_path: Path) -> None:
    """Neither the answer's memory nor the connection is kept, though the client is still there."""
    tls = tls_folder(tmp_path) if is_tls else None
    shown: dict[str, Any] = {} if tls is None else {"certificate": tls.certificate, "key": tls.key}
    node = http_node(slow_ms=100, address_burst=1_000, **shown)
    async with node as house, _non_reading_client(house, is_tls) as writer:
        asked = json.dumps([request("rpc.discover")] * 60).encode()
        writer.write(HEAD.replace(b"length: %d" % len(STATUS), b"length: %d" % len(asked)) + asked)
        await until(lambda: house.server.metrics.disconnected["slow"] == 1)
        await until(lambda: not house.server.metrics.connections())


async def test_who_takes_its_answer_slowly_but_surely_gets_all_of_it() -> None:
    """However long it takes: whenever the door looks, something was taken since it looked last."""
    async with http_node(address_burst=1_000) as house, house.raw_connection() as (reader, writer):
        asked = json.dumps([request("rpc.discover")] * 60).encode()
        writer.write(HEAD.replace(b"length: %d" % len(STATUS), b"length: %d" % len(asked)) + asked)
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        answering = _server_side(house)
        untaken, looks = answering._unread(), 0
        while left:
            left -= len(await reader.read(400_000))
            if answering._unread() < untaken:
                assert answering._reader_timer is not None
                answering._reader_timer._run()  # its time has come
                untaken, looks = answering._unread(), looks + 1
        assert looks > 1
        assert not house.server.metrics.disconnected["slow"]


def _server_side(house: HttpNode) -> GuardedHttp:
    """The door's side of the one connection that there is."""
    assert house.server._server is not None
    (found,) = house.server._server.server_state.connections
    assert isinstance(found, GuardedHttp)
    return found


async def test_the_second_request_of_a_connection_is_watched_like_the_first() -> None:
    async with http_node(head_ms=150) as house, house.raw_connection(HEAD + STATUS) as (reader, writer):
        assert (await response_on(reader))[0] == 200
        writer.write(HEAD + STATUS)
        assert (await response_on(reader))[0] == 200
        writer.write(b"GET /heal")
        assert (await response_on(reader))[0] == 408


async def test_a_body_that_does_not_come_is_not_waited_for_and_does_nothing() -> None:
    async with http_node(body_ms=60) as house, house.raw_connection() as (reader, writer):
        before = house.digest()
        writer.write(HEAD + STATUS[:-1])
        status, _, said = await response_on(reader)
        assert (status, said["error"]["data"]["name"]) == (408, "InvalidRequest")
        assert await reader.read() == b""
        assert house.digest() == before
        assert house.server.metrics.requests == {}


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with http_node(idle_ms=60) as house, house.raw_connection() as (reader, writer):
        writer.write(HEAD + STATUS)
        assert (await response_on(reader))[0] == 200
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""


async def test_half_a_request_has_no_meaning() -> None:
    async with http_node() as house:
        before = house.digest()
        for sent in (HEAD, HEAD + STATUS[:-1], HEAD[:-2], b"GET /events HTTP/1.1\r\n"):
            async with house.raw_connection() as (_, writer):
                writer.write(sent)
                await writer.drain()
        await until(lambda: house.server.metrics.connections() == 0)
        assert house.digest() == before
        assert house.server.metrics.requests == {}
        assert await is_open(house)


async def test_a_client_that_stops_speaking_still_hears_the_answer() -> None:
    async with http_node() as house, house.raw_connection() as (reader, writer):
        writer.write(HEAD + STATUS)
        writer.write_eof()
        assert (await response_on(reader))[0] == 200


# ------------------------------------------------------------------------------------------------ much


@pytest.mark.parametrize(("size", "status"), [(1_800, 200), (2_100, 431), (500_000, 431)])
async def test_a_head_has_a_limit(size: int, status: int) -> None:
    async with http_node(head_bytes_max=2_048) as house, house.raw_connection() as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * size + b"\r\n\r\n")
        got, _, said = await response_on(reader)
        assert got == status
        assert status == 200 or said["error"]["data"]["name"] == "TooLarge"


async def test_many_small_headers_are_one_large_head() -> None:
    async with http_node(head_bytes_max=2_048) as house, house.raw_connection() as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 500)
        assert (await response_on(reader))[0] == 431


async def test_a_path_counts_as_head() -> None:
    async with http_node(head_bytes_max=2_048) as house, house.raw_connection() as (reader, writer):
        writer.write(b"GET /" + b"x" * 2_100 + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await response_on(reader))[0] == 431


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"hello\r\n\r\n",
        b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused_and_the_server_stays_open(sent: bytes) -> None:
    async with http_node() as house:
        async with house.raw_connection() as (reader, writer):
            writer.write(sent)
            status, _, said = await response_on(reader)
            assert (status, said["error"]["data"]["name"]) == (400, "InvalidRequest")
        assert await is_open(house)


async def test_connections_have_a_limit() -> None:
    async with (
        http_node(connections_max=2, address_connections_max=2) as house,
        house.raw_connection() as (reader, writer),
        house.raw_connection(),
    ):
        await until(lambda: house.server.metrics.connections() == 2)
        async with house.raw_connection() as (third, _):
            status, _, said = await response_on(third)
            assert (status, said["error"]["data"]["name"]) == (503, "RateLimited")
            assert await third.read() == b""
        writer.write(HEAD + STATUS)
        assert (await response_on(reader))[0] == 200, "who is in stays in"
        await until(lambda: house.server.metrics.connections() == 2)


@pytest.mark.rule("SEC-001")
async def test_idle_sockets_of_a_crowd_shut_out_no_client_with_a_key() -> None:
    """4 096 anonymous WebSockets shut the door for all."""
    async with http_node(connections_max=8, address_connections_max=4) as node, AsyncExitStack() as crowd:
        token = await node.token()
        for _ in range(20):
            await crowd.enter_async_context(node.raw_connection())
        for _ in range(3):
            assert (await node.call("node.getStatus", token)).status_code == 200
        async with websockets.connect(node.ws, additional_headers=bearer(token)) as wire:
            await wire.send(json.dumps(request("node.getStatus")))
            assert "result" in json.loads(await wire.recv())
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(node.ws)
        assert refused.value.response.status_code == 503
        assert (await node.call("node.getStatus")).status_code == 200, "on probation: answered, and closed"


@pytest.mark.rule("SEC-001")
async def test_a_websocket_without_a_key_that_says_nothing_is_closed() -> None:
    async with http_node(idle_ms=50) as node:
        async with websockets.connect(node.ws) as wire, asyncio.timeout(WITHIN_S):
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await wire.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4009
        assert node.server.metrics.disconnected["idle"] == 1


async def test_the_slot_of_a_closed_connection_is_free() -> None:
    async with http_node(connections_max=1, address_connections_max=1) as house:
        for _ in range(5):
            async with house.raw_connection() as (reader, writer):
                writer.write(HEAD + STATUS)
                assert (await response_on(reader))[0] == 200
            await until(lambda: house.server.metrics.connections() == 0)


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with http_node() as house, house.raw_connection() as (reader, writer):
        asked = [json.dumps(request("node.getStatus") | {"id": number}).encode() for number in range(1, 30)]
        writer.write(b"".join(HEAD.replace(b": %d" % len(STATUS), b": %d" % len(raw)) + raw for raw in asked))
        assert [(await response_on(reader))[2]["id"] for _ in asked] == list(range(1, 30))


# ------------------------------------------------------------------------------------------------ opening


async def test_a_port_that_is_taken_is_named() -> None:
    async with http_node() as house:
        door = HttpServer(
            NodeAccess(house.engine, house.engine.submit), house.world.clock, HttpSettings(port=house.server.port)
        )
        with pytest.raises(Unavailable, match=f"127.0.0.1:{house.server.port} cannot be listened on"):
            await door.open()
        await door.close()
        assert await is_open(house)


async def test_plain_text_is_not_spoken_where_others_can_hear() -> None:
    with pytest.raises(Unavailable, match=r"0\.0\.0\.0 is reachable from other machines"):
        async with http_node(host="0.0.0.0"):
            pass
    async with http_node(host="0.0.0.0", allow_plain=True) as house, house.raw_connection() as (reader, writer):
        writer.write(HEAD + STATUS)
        assert (await response_on(reader))[0] == 200


def test_answers_are_not_held_back_to_be_sent_together() -> None:
    with listening_socket(HttpSettings(port=0)) as sock:
        assert sock.proto == socket.IPPROTO_TCP, "what asyncio looks at before it switches Nagle's delay off"


async def test_port_0_takes_a_free_port_and_reports_it() -> None:
    async with http_node(port=0, host="127.0.0.1") as house:
        assert house.server.port != 0
        assert house.url == f"http://127.0.0.1:{house.server.port}"
        assert await is_open(house)


# ------------------------------------------------------------------------------------------------ TLS


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return tls_folder(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return tls_folder(tmp_path_factory.mktemp("theirs"))


def trusting(authority: Path, shown: CertificateFiles | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    return context


async def test_over_tls_everything_is_as_it_is_without(ours: CertificateFiles) -> None:
    async with http_node(certificate=ours.certificate, key=ours.key) as house:
        assert house.url.startswith("https://")
        async with httpx.AsyncClient(
            base_url=house.url, verify=trusting(ours.ca_certificate), timeout=WITHIN_S
        ) as client:
            assert "result" in (await client.post("/rpc", json=request("node.getStatus"))).json()
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            async with httpx.AsyncClient(base_url=house.url, timeout=WITHIN_S) as stranger:
                await stranger.get("/healthz")


def test_old_tls_is_not_spoken(ours: CertificateFiles) -> None:
    context = tls_context(HttpSettings(certificate=ours.certificate, key=ours.key))
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_who_has_no_certificate_of_ours_stays_outside(ours: CertificateFiles, theirs: CertificateFiles) -> None:
    folder = ours.ca_certificate.parent
    mine, other = client_certificate(folder, "oak"), client_certificate(theirs.ca_certificate.parent, "oak")
    async with http_node(certificate=ours.certificate, key=ours.key, client_ca=ours.ca_certificate) as house:
        for shown, is_let_in in ((mine, True), (other, False), (None, False)):
            told: dict[str, Any] = {"verify": trusting(ours.ca_certificate, shown), "timeout": WITHIN_S}
            async with httpx.AsyncClient(base_url=house.url, **told) as client:
                if is_let_in:
                    assert (await client.get("/healthz")).status_code == 200
                else:
                    with pytest.raises(httpx.TransportError):
                        await client.get("/healthz")


async def test_a_handshake_that_is_not_finished_is_not_waited_for(ours: CertificateFiles) -> None:
    async with (
        http_node(certificate=ours.certificate, key=ours.key, head_ms=60) as house,
        house.raw_connection() as (reader, _),
    ):
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""


async def test_files_of_tls_that_cannot_be_read_are_named(ours: CertificateFiles, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="TLS"):
        async with http_node(certificate=ours.certificate, key=tmp_path / "nothing.key"):
            pass
