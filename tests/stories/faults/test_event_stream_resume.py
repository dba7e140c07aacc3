"""Whoever follows a node's events over the network misses nothing and sees nothing twice, though it is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.counts import FULL
from tests.stories.cli_runner import CliNode, running_cli_node
from tests.stories.node_process import QUIET_CHAIN
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from holdfast.client import AsyncClient
from holdfast.client.node_socket import NodeSocket

pytestmark = pytest.mark.rule("EVT-001")
LIVES = 2
JOBS = 6
"""That are admitted in each life of the node."""
WITHIN_S = 20.0
Seen = tuple[int, str]


async def follow_sse(node: CliNode, token: str, after: int, types: str) -> AsyncIterator[Seen]:
    """Server-sent events until the node is gone; the id of a comment moves the cursor, too."""
    asked = {"after": str(after)} | ({"types": types} if types else {})
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(timeout=WITHIN_S) as client,
        client.stream("GET", f"{node.url}/events", params=asked, headers=headers) as response,
    ):
        number = after
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            elif name == "data" and "number" in (said := json.loads(value)):
                yield number, said["type"]


async def follow_websocket(node: CliNode, token: str, after: int, types: str) -> AsyncIterator[Seen]:
    """The same over a WebSocket."""
    url, headers = f"{node.url.replace('http', 'ws')}/ws", {"authorization": f"Bearer {token}"}
    async with connect(url, additional_headers=headers) as wire:
        params: dict[str, Any] = {"after": after} | ({"types": types.split(",")} if types else {})
        asked = {"jsonrpc": "2.0", "id": 1, "method": "events.subscribe", "params": params}
        await wire.send(json.dumps(asked))
        async for raw in wire:
            said = json.loads(raw)
            if said.get("method") == "event":
                yield said["params"]["number"], said["params"]["type"]


TRANSPORTS = [(core, types) for core in (follow_sse, follow_websocket) for types in ("", "jobAdmitted,jobCancelled")]


async def follow(node: CliNode, seen: list[Seen], transport: Any, token: str, types: str) -> None:
    """As a client does: whatever happens, come back with the last number that was seen."""
    while True:
        try:
            async for each in transport(node, token, seen[-1][0] if seen else 0, types):
                seen.append(each)
        except (httpx.HTTPError, WebSocketException, OSError):
            await asyncio.sleep(0.01)


async def run_until_killed(node: CliNode, life: int, seen: list[Seen]) -> None:
    """Work for a while, and be killed as soon as the follower has come to the middle of it."""
    async with AsyncClient(node.node.data) as client:
        for number in range(JOBS):
            payload = {"kind": "AI", "spec": {"model": "m", "prompt": f"{life}/{number}"}}
            receipt = await client.enqueue(payload, 1, caller="alice")
            if number % 2:
                await client.cancel(receipt)
    await wait_until(lambda: len(seen) >= life * JOBS + JOBS // 2)
    await node.node.kill()
    await node.node.up()


async def wait_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(("transport", "types"), TRANSPORTS if FULL else TRANSPORTS[::3])
async def test_a_follower_of_a_node_that_is_killed_again_and_again_sees_each_event_once(
    transport: Any, types: str, tmp_path: Path
) -> None:
    seen: list[Seen] = []
    async with running_cli_node(tmp_path, chain=QUIET_CHAIN) as node:
        await node.run("account", "mint", "alice", 1_000)
        token = (await node.run("key", "create", "--role", "auditor")).out.strip()
        following = asyncio.create_task(follow(node, seen, transport, token, types))
        for life in range(LIVES):
            await run_until_killed(node, life, seen)
        async with NodeSocket(node.node.data) as client:
            last = (await client.call("node.getStatus"))["event"]
            history = [each async for each in _events_until(client, last)]
        wanted = [number for number, name in history if not types or name in ("jobAdmitted", "jobCancelled")]
        await wait_until(lambda: len(seen) >= len(wanted))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert [number for number, _ in seen] == wanted
    if types:
        assert [name for _, name in seen].count("jobAdmitted") == LIVES * JOBS
    else:
        assert wanted == list(range(1, last + 1)), "numbers have no gaps"


async def _events_until(client: NodeSocket, last: int) -> AsyncIterator[Seen]:
    """All of history, as the local socket tells it."""
    async for event in client.follow(0):
        yield event["number"], event["type"]
        if event["number"] >= last:
            return
