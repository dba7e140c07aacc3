"""The HTTP API on a socket of the data folder: a program that can open it is an operator, a token is still honoured."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.api.http.http_node import HttpNode, bearer, http_server, name_of, request
from tests.api.result_node import ResultNode, result_node

from holdfast.adapters.warm_store import WarmStore
from holdfast.api.http.server import HttpServer
from holdfast.api.http.settings import HttpSettings
from holdfast.client import HTTP_SOCKET_NAME
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import AccountId
from holdfast.core.key.model import Role
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("SEC-001", "RES-009")


@pytest.fixture
async def results(tmp_path: Path) -> AsyncIterator[ResultNode]:
    async with result_node() as made:
        made.access.blobs = WarmStore(tmp_path / "warm")
        yield made


@pytest.fixture
async def path(results: ResultNode, tmp_path: Path) -> AsyncIterator[Path]:
    path = tmp_path / HTTP_SOCKET_NAME
    path.write_bytes(b"left by a node that was killed")
    server = HttpServer(results.access, results.world.clock, HttpSettings(drain_ms=100), unix_path=path)
    await server.open()
    yield path
    await server.close()
    assert not path.exists()


def client(path: Path, token: str | None = None) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=bearer(token))


async def test_who_can_open_the_socket_is_an_operator(results: ResultNode, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert results.access.blobs is not None
    await results.access.blobs.put_many({result_digest(b"out"): b"out"})
    task = await results.readable(b"out")
    async with client(path) as local:
        assert (await local.get(f"/v1/outputs/{task.hex()}")).content == b"out"
        minted = await local.post("/rpc", json=request("key.listKeys"))
        assert "result" in minted.json()
        async with local.stream("GET", "/events?after=0&types=minted") as events:
            assert events.status_code == 200
            assert "event: minted" in [line async for line in _first_lines(events)]


async def _first_lines(events: httpx.Response) -> AsyncIterator[str]:
    async for line in events.aiter_lines():
        yield line
        if line.startswith("event:"):
            return


async def test_a_token_is_honoured_there_too(results: ResultNode, path: Path) -> None:
    task = await results.readable(b"out")
    async with http_server(results.access, results.world) as server:
        keys = HttpNode(results.world, results.engine, results.access, server)
        bob = await keys.token(Role.REQUESTER, account=AccountId("bob"))
    for token, status, name in ((bob, 403, "Forbidden"), ("hf_no", 401, "Unauthorized")):
        async with client(path, token) as other:
            answer = await other.get(f"/v1/outputs/{task.hex()}")
            assert (answer.status_code, name_of(answer)) == (status, name)


async def test_a_path_that_is_too_long_for_a_socket_is_refused(results: ResultNode, tmp_path: Path) -> None:
    server = HttpServer(results.access, results.world.clock, HttpSettings(), unix_path=tmp_path / ("x" * 120))
    with pytest.raises(Unavailable, match="too long for a socket"):
        await server.open()
