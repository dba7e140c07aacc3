"""An HTTP door to knock at: a real server on a loopback port over a simulated node, keys of every kind, raw sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
from tests.core.commands import some_id
from tests.loopback_ports import free_port
from tests.simulation.world import World

from holdfast.api.http.server import HttpServer
from holdfast.api.http.settings import HttpSettings
from holdfast.api.node_access import NodeAccess, RpcMethod
from holdfast.api.rpc.methods import METHODS
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import AccountId, Amount, KeyId
from holdfast.core.escrow.messages import Mint
from holdfast.core.key.messages import CreateKey, RevokeKey
from holdfast.core.key.model import Role, secret_hash
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

SECRET = "s3cret-" + "s" * 25
WITHIN_S = 20.0
"""How long a test waits for what must come."""


class HttpNode:
    """A door, the node behind it, and the means to look into both."""

    def __init__(self, world: World, engine: Engine, access: NodeAccess, server: HttpServer) -> None:
        self.world, self.engine, self.access, self.server = world, engine, access, server
        self._keys = count(1)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1) + "/ws"

    def digest(self) -> bytes:
        return digest(self.engine.undurable_state)

    async def token(self, role: Role = Role.OPERATOR, **told: Any) -> str:
        """A new key's token; a requester's is alice's unless told otherwise."""
        id_ = KeyId(f"{next(self._keys):016x}")
        if role is Role.REQUESTER:
            told = {"account": AccountId("alice")} | told
        made = await self.engine.submit(CreateKey(id_, secret_hash(SECRET.encode()), role, **told))
        assert isinstance(made, Accepted), made
        return f"hf_{id_}_{SECRET}"

    async def revoke(self, token: str) -> None:
        revoked = await self.engine.submit(RevokeKey(KeyId(token.split("_")[1])))
        assert isinstance(revoked, Accepted), revoked

    async def mint(self, *numbers: int, owner: str = "alice") -> None:
        for number in numbers:
            done = await self.engine.submit(Mint(some_id(number), AccountId(owner), Amount(1)))
            assert isinstance(done, Accepted), done

    @asynccontextmanager
    async def client(self, token: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(base_url=self.url, headers=bearer(token), timeout=WITHIN_S) as client:
            yield client

    async def call(self, method: str, token: str | None = None, **params: object) -> httpx.Response:
        async with self.client(token) as client:
            return await client.post("/rpc", json=request(method, **params))

    async def post(self, raw: bytes, token: str | None = None, **headers: str) -> httpx.Response:
        async with self.client(token) as client:
            kind = {"content-type": "application/json"} | {name.replace("_", "-"): v for name, v in headers.items()}
            return await client.post("/rpc", content=raw, headers=kind)

    @asynccontextmanager
    async def raw_connection(
        self, said: bytes = b""
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A bare connection; what is said first lies there before the door lets it in and begins to count the time."""
        sock = socket.create_connection(("127.0.0.1", self.server.port))
        sock.sendall(said)
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            yield reader, writer
        finally:
            writer.close()


@asynccontextmanager
async def http_node(
    world: World | None = None, methods: Mapping[str, RpcMethod] = METHODS, **told: Any
) -> AsyncIterator[HttpNode]:
    """A door on a free port, closed when the test is done."""
    world = world or World()
    engine = await world.started()
    desk = NodeAccess(engine, engine.submit)
    try:
        async with http_server(desk, world, methods, **told) as door:
            yield HttpNode(world, engine, desk, door)
    finally:
        world.disk.release.set()
        await engine.stop()


@asynccontextmanager
async def second_server(node: HttpNode, **told: Any) -> AsyncIterator[HttpNode]:
    """The same node through another door, with limits of its own."""
    async with http_server(node.access, node.world, **told) as door:
        yield HttpNode(node.world, node.engine, node.access, door)


@asynccontextmanager
async def http_server(
    access: NodeAccess, world: World, methods: Mapping[str, RpcMethod] = METHODS, **told: Any
) -> AsyncIterator[HttpServer]:
    for _ in range(5):
        settings = HttpSettings(**({"port": free_port(), "drain_ms": int(WITHIN_S * 1_000)} | told))
        door = HttpServer(access, world.clock, settings, methods)
        try:
            await door.open()
            break
        except Unavailable as fault:
            if "cannot be listened on" not in fault.message:
                raise
    else:
        raise AssertionError("no free port")
    try:
        yield door
    finally:
        await door.close()


def request(method: str, /, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def name_of(response: httpx.Response) -> str:
    """The name of the error in an answer; every one of them has a rule."""
    data = response.json()["error"]["data"]
    assert data["rule"]
    return str(data["name"])


async def response_on(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of one answer on a bare connection."""
    async with asyncio.timeout(WITHIN_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, json.loads(body) if body else None


async def until(is_so: Any) -> None:
    """Turn by turn, until it is so."""
    async with asyncio.timeout(WITHIN_S):
        while not is_so():
            await asyncio.sleep(0.001)
