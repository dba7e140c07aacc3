"""All abuse cases together while the node is killed again and again: honest clients are served, and nothing is lost.

`make attack` runs it for an hour (`ATTACK_S` seconds on each store), `make test-all` for three minutes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from bench.abuse_cases import CASES, LOW_PRIORITY, OVER_GRPC
from bench.api.servers import KEY, OTHER_KEY, SECRET, TOKEN
from tests.loopback_ports import free_ports
from tests.storage.stores import Place
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast.client.node_socket import NodeSocket
from holdfast.core.key.model import secret_hash

SECONDS = float(os.environ.get("ATTACK_S", "90"))
"""On each of the two stores."""
LIFE_S = max(2.0, min(20.0, SECONDS / 3))
"""How long a node lives until it is killed."""
MONEY, FEE, PATIENCE_S = 10**9, 3, 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Honest:
    """A requester over HTTP that tries again until it has its receipt, as a client does."""

    def __init__(self, port: int) -> None:
        self.port, self.receipts, self.served = port, dict[str, str](), 0

    async def work(self, stop: asyncio.Event) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=10) as client:
            while not stop.is_set():
                key = secrets.token_hex(8)
                while (receipt := await self._enqueue(client, key)) is None:
                    await asyncio.sleep(0.1)
                self.receipts[key] = receipt["task_id"]
                self.served += 1

    async def _enqueue(self, client: httpx.AsyncClient, key: str) -> dict[str, Any] | None:
        payload = {"kind": "AI", "spec": {"model": "m", "prompt": key}}
        params = {"payload": payload, "max_fee": FEE, "idempotency_key": key, "caller": "alice"}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "cap.enqueue", "params": params}
        try:
            answer = (await client.post("/rpc", json=asked)).json()
        except (httpx.HTTPError, ValueError):
            return None  # the node was killed: again, with the same key
        return answer.get("result")  # type: ignore[no-any-return]


@asynccontextmanager
async def abusers(http: int, grpc: int, folder: Path) -> AsyncIterator[None]:
    """One process for each case, ended by its pid. With a higher priority a node could not start beside them."""
    words = (*LOW_PRIORITY, sys.executable, "-m", "bench.abuse_cases")
    environ = os.environ | {"TMPDIR": str(folder)}
    ports = dict.fromkeys(CASES, http) | dict.fromkeys(OVER_GRPC, grpc)
    running = [
        await asyncio.create_subprocess_exec(*words, case, str(port), str(10 * SECONDS), env=environ)
        for case, port in ports.items()
    ]
    try:
        yield
    finally:
        for process in running:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in running))


async def create_keys(client: NodeSocket) -> None:
    hashed = secret_hash(SECRET.encode()).hex()
    await client.call("key.createKey", id=KEY, secret=hashed, role="operator")
    await client.call("key.createKey", id=OTHER_KEY, secret=hashed, role="requester", account="mallory")
    await client.mint(bytes(32), "alice", MONEY)


async def sums_of_accounts(client: NodeSocket) -> dict[str, tuple[int, int, int]]:
    """Of all accounts, as soon as the tables have every event."""
    last = (await client.status())["event"]
    while (page := await client.call("account.listAccounts", limit=1_000))["as_of"] < last:
        await asyncio.sleep(0.05)
    return {each["owner"]: (each["available"], each["held"], each["pending"]) for each in page["rows"]}


@pytest.mark.full
@pytest.mark.rule("SEC-002", "ENG-002")
@pytest.mark.timeout(3 * SECONDS + 600)
async def test_honest_clients_are_served_under_attack_and_nothing_is_lost(place: Place, store: str) -> None:
    port, grpc_port = free_ports(2)
    settings = {"HOLDFAST_HTTP__ENABLED": "true", "HOLDFAST_HTTP__PORT": str(port)}
    settings |= {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(grpc_port)}
    node = NodeProcess(
        place.folder / "data", "node", settings | (on_postgres(place.address) if store == "postgres" else {})
    )
    honest, stop, served_in_lives = Honest(port), asyncio.Event(), list[int]()
    try:
        await node.up()
        async with NodeSocket(node.data, PATIENCE_S) as client:
            await create_keys(client)
        async with abusers(port, grpc_port, place.folder), asyncio.TaskGroup() as group:
            group.create_task(honest.work(stop))
            for _ in range(round(SECONDS / LIFE_S)):
                before = honest.served
                await asyncio.sleep(LIFE_S)
                await node.kill()
                await node.up()
                served_in_lives.append(honest.served - before)
            stop.set()
        assert all(served_in_lives), served_in_lives
        async with NodeSocket(node.data, PATIENCE_S) as client:
            assert len(set(honest.receipts.values())) == len(honest.receipts)
            for task in honest.receipts.values():
                assert (await client.call("cap.getJob", task_id=task))["job"]["state"] == "QUEUED"
            sums = await sums_of_accounts(client)
            depth = (await client.call("queue.getStatus"))["depth"]
        assert depth == len(honest.receipts), "every job has its receipt, and every receipt its job"
        assert sums == {"mint": (-MONEY, 0, 0), "alice": (MONEY - depth * FEE, depth * FEE, 0)}, "of all accounts"
    finally:
        node.end()
