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
from tests.core.books import some_id
from tests.ports import free_port
from tests.simulated.world import World

from holdfast.core.escrow.acts import Mint
from holdfast.core.key import MakeKey, RevokeKey, Role, secret_hash
from holdfast.core.refusal import Unavailable
from holdfast.core.state import digest
from holdfast.core.values import AccountId, Amount, KeyId
from holdfast.doors.desk import Desk, Method
from holdfast.doors.http.door import HttpDoor
from holdfast.doors.http.settings import HttpSettings
from holdfast.doors.methods import METHODS
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

SECRET = "s3cret-" + "s" * 25
WITHIN_S = 20.0
"""How long a test waits for what must come."""


class House:
    """A door, the node behind it, and the means to look into both."""

    def __init__(self, world: World, engine: Engine, desk: Desk, door: HttpDoor) -> None:
        self.world, self.engine, self.desk, self.door = world, engine, desk, door
        self._keys = count(1)

    @property
    def url(self) -> str:
        return self.door.url

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1) + "/ws"

    def digest(self) -> bytes:
        return digest(self.engine.state)

    async def token(self, role: Role = Role.OPERATOR, **told: Any) -> str:
        """A new key's token; a requester's is alice's unless told otherwise."""
        id_ = KeyId(f"{next(self._keys):016x}")
        if role is Role.REQUESTER:
            told = {"account": AccountId("alice")} | told
        made = await self.engine.submit(MakeKey(id_, secret_hash(SECRET.encode()), role, **told))
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
    async def wire(self, said: bytes = b"") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A bare connection; what is said first lies there before the door lets it in and begins to count the time."""
        sock = socket.create_connection(("127.0.0.1", self.door.port))
        sock.sendall(said)
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            yield reader, writer
        finally:
            writer.close()


@asynccontextmanager
async def opened(
    world: World | None = None, methods: Mapping[str, Method] = METHODS, **told: Any
) -> AsyncIterator[House]:
    """A door on a free port, closed when the test is done."""
    world = world or World()
    engine = await world.started()
    desk = Desk(engine, engine.submit)
    try:
        async with a_door(desk, world, methods, **told) as door:
            yield House(world, engine, desk, door)
    finally:
        world.disk.release.set()
        await engine.stop()


@asynccontextmanager
async def beside(house: House, **told: Any) -> AsyncIterator[House]:
    """The same node through another door, with limits of its own."""
    async with a_door(house.desk, house.world, **told) as door:
        yield House(house.world, house.engine, house.desk, door)


@asynccontextmanager
async def a_door(
    desk: Desk, world: World, methods: Mapping[str, Method] = METHODS, **told: Any
) -> AsyncIterator[HttpDoor]:
    for _ in range(5):
        settings = HttpSettings(**({"port": free_port(), "drain_ms": int(WITHIN_S * 1_000)} | told))
        door = HttpDoor(desk, world.clock, settings, methods)
        try:
            await door.open()
            break
        except Unavailable as fault:
            if "cannot be listened on" not in fault.says:
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
