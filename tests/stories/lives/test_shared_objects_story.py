"""Two nodes on PostgreSQL with their own folders and one bucket: what one received, the other serves and archives."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.loopback_ports import free_ports
from tests.seaweedfs.server import SeaweedServer
from tests.storage.stores import Place
from tests.stories.agent_process import AgentProcess
from tests.stories.lives.test_archive_story import LARGE, PATIENCE_S, SETTINGS
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast.adapters.keys.signing import SigningKey
from holdfast.adapters.objects.remote_store import RemoteObjects
from holdfast.client import AsyncClient
from holdfast.client.node_socket import NodeSocket

NOWHERE = "http://127.0.0.1:1"


class SharingNodes:
    """The archive of the first node is away: what it packs is for the other one to archive."""

    def __init__(self, place: Place, server: SeaweedServer) -> None:
        bucket = server.bucket()
        self.objects = RemoteObjects(bucket, endpoint=server.endpoint, config=server.config)
        shared = {"HOLDFAST_OBJECTS__URL": f"{bucket}/network", "HOLDFAST_OBJECTS__ENDPOINT": server.endpoint}
        settings = SETTINGS | on_postgres(place.address) | server.environment | shared
        settings |= {"HOLDFAST_STANDBY": "true", "HOLDFAST_ARCHIVE__PROVIDER": "s3"}
        settings |= {"HOLDFAST_ARCHIVE__URL": f"{server.bucket()}/archive", "HOLDFAST_HTTP__ENABLED": "false"}
        self.port, other = free_ports(2)
        ports = (self.port, other)
        self.one, self.two = (
            NodeProcess(
                place.folder / name,
                name,
                settings | {"HOLDFAST_GRPC__PORT": str(port), "HOLDFAST_ARCHIVE__ENDPOINT": endpoint},
            )
            for name, port, endpoint in zip(("one", "two"), ports, (NOWHERE, server.endpoint), strict=True)
        )
        self.agent = AgentProcess(place.folder / "oak", "oak", self.port)

    async def start(self, node: NodeProcess) -> Path:
        return await node.up(node.data / f"{node.name}.sock")

    def end(self) -> None:
        self.agent.end()
        for node in (self.one, self.two):
            node.end()


@pytest.fixture
def nodes(place: Place, seaweedfs: SeaweedServer) -> Iterator[SharingNodes]:
    made = SharingNodes(place, seaweedfs)
    yield made
    made.end()


async def until(client: NodeSocket, **expected: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = await client.call("archive.getStatus")
            if all(status[name] == value for name, value in expected.items()):
                return
            await asyncio.sleep(0.05)


async def finish_job(nodes: SharingNodes, client: NodeSocket) -> str:
    await client.mint(bytes(32), "alice", 10**6)
    await client.mint(b"\1" * 32, "oak", 10_000)
    async with asyncio.timeout(PATIENCE_S):
        while not (providers := (await client.call("aicf.listProviders"))["providers"]):
            await asyncio.sleep(0.05)
    id_ = providers[0]["provider"]["id"]
    await client.call("provider.stake", provider_id=id_, amount=10_000, request="02" * 32)
    async with AsyncClient(nodes.one.data, timeout_s=PATIENCE_S) as requester:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": LARGE}}
        receipt = await requester.enqueue(payload, 100, caller="alice", idempotency_key="job")
        return (await requester.wait(receipt)).task_id


@pytest.mark.timeout(240)
@pytest.mark.rule("ENG-006", "TIER-001", "BLB-002", "NTC-005")
async def test_a_node_that_takes_over_serves_and_archives_what_the_other_one_received(nodes: SharingNodes) -> None:
    await nodes.objects.put_once("made", b"")  # a bucket exists before its first use
    key = SigningKey.load_or_create(nodes.two.data / "keys" / "node.pem")
    first = await nodes.start(nodes.one)
    shutil.copy(nodes.one.data / "keys" / "archive.key", nodes.two.data / "keys" / "archive.key")
    second = await nodes.start(nodes.two)
    nodes.agent.up()
    async with NodeSocket(first, PATIENCE_S) as owner:
        task = await finish_job(nodes, owner)
        await until(owner, pending=2, archived=0)  # packed by the first node, which cannot archive it
        async with asyncio.timeout(PATIENCE_S):  # the set begins with the first sealed block that has blobs
            while not await owner.call("validator.list"):
                await asyncio.sleep(0.05)
        await owner.call("validator.add", key=key.public.hex())
        height = (await owner.call("chain.getHead"))["block"]["height"]
        async with asyncio.timeout(PATIENCE_S):
            while (await owner.call("chain.getHead"))["block"]["height"] < height + 2:
                await asyncio.sleep(0.05)
    await nodes.one.kill()
    shutil.rmtree(nodes.one.data)  # its machine is gone
    async with NodeSocket(second, PATIENCE_S) as owner:
        await until(owner, archived=2, pending=0)
    async with AsyncClient(nodes.two.data, timeout_s=PATIENCE_S) as requester:
        assert await requester.result(task) == LARGE.encode()
