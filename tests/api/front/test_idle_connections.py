"""Thousands of idle connections to gRPC: the node keeps its descriptors, and honest agents get in (SEC-002)."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.counts import counts
from tests.loopback_ports import free_ports
from tests.stories.agent_process import REGISTERED, AgentProcess
from tests.stories.node_process import NodeProcess

from holdfast.system.descriptors import raise_descriptor_limit

pytestmark = pytest.mark.rule("SEC-002")
IDLE = counts(900, 5_000)
NODE_DESCRIPTORS = 200
"""What the node is left with once it runs: far fewer than there are idle connections."""
WITHIN_S = 60.0
PATIENT = ("HANDSHAKE", "IDLE", "KEEPALIVE")
"""Nobody is closed for being silent: who gets in does so by the places alone."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@asynccontextmanager
async def running_node(folder: Path) -> AsyncIterator[tuple[NodeProcess, int, int]]:
    http, grpc = free_ports(2)
    environ = {
        "HOLDFAST_HTTP__ENABLED": "true",
        "HOLDFAST_HTTP__PORT": str(http),
        "HOLDFAST_GRPC__ENABLED": "true",
        "HOLDFAST_GRPC__PORT": str(grpc),
        "HOLDFAST_GRPC__ADDRESS_CONNECTIONS_MAX": "20",
        "HOLDFAST_GRPC__CONNECTIONS_MAX": "80",
    } | {f"HOLDFAST_GRPC__{name}_MS": "600000" for name in PATIENT}
    node = NodeProcess(folder / "node", "node", environ)
    try:
        await node.up()
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (NODE_DESCRIPTORS, NODE_DESCRIPTORS))
        yield node, http, grpc
        assert await node.stop() == 0
    finally:
        node.end()


@pytest.mark.parametrize("said", [b"", PREFACE], ids=["silent", "speaking"])
async def test_idle_grpc_connections_take_nothing_from_honest_clients(tmp_path: Path, said: bytes) -> None:
    """The silent never reach the node; those who begin to speak reach it in the number that it accepts."""
    raise_descriptor_limit(IDLE + 500)
    async with running_node(tmp_path) as (node, http, grpc):
        before = descriptors(node.pid)
        writers = []
        for _ in range(IDLE):
            _, writer = await asyncio.open_connection("127.0.0.1", grpc)
            writer.write(said)
            writers.append(writer)
        agent = AgentProcess(tmp_path / "oak", "oak", grpc)
        agent.up()
        try:
            async with asyncio.timeout(WITHIN_S):
                while REGISTERED not in agent._logged():
                    assert await is_answered(http)
                    await asyncio.sleep(0.05)
            assert descriptors(node.pid) - before < (20 if not said else 120)
            assert await agent.stop() == 0
        finally:
            agent.end()
            for writer in writers:
                writer.transport.abort()


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def is_answered(port: int) -> bool:
    """On a connection of its own, which needs a descriptor of the node."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "node.getStatus"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
        return (await client.post("/rpc", json=asked)).status_code == 200
