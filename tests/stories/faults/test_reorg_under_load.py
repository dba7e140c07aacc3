"""Blocks are rolled back on a real node while jobs, evidence, reads and retention run: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.loopback_ports import free_ports
from tests.storage.stores import Place
from tests.stories.agent_process import AgentProcess
from tests.stories.cli_runner import holdfast
from tests.stories.node_process import NodeProcess

from holdfast.client import AsyncClient, NodeRefused
from holdfast.client.node_socket import NodeSocket

PATIENCE_S = 90.0
PROMPTS = [f"answer {n} " * (1 if n % 3 else 60) for n in range(24)]
"""Some are kept hot, some are pinned."""
FINAL_AFTER = 6
SETTINGS = {
    "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "40",
    "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "100",
    "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": str(FINAL_AFTER),
    "HOLDFAST_POLICY__RESULT__MAX_INLINE_BYTES": "300",
    "HOLDFAST_POLICY__RESULT__RETAIN_HOT_BLOCKS": str(FINAL_AFTER),
    "HOLDFAST_POLICY__RESULT__RETAIN_WARM_DAYS": "1",
    "HOLDFAST_POLICY__RESULT__RETAIN_COLD_DAYS": "1",
    "HOLDFAST_POLICY__RESULT__GC_INTERVAL_MS": "20",
    "HOLDFAST_GRPC__ENABLED": "true",
}
"""Retention always runs; there is no archive, and nothing may be lost."""


class NodeUnderReorgs:
    """A node, an agent, and somebody who takes blocks back as fast as they come."""

    def __init__(self, place: Place) -> None:
        (port,) = free_ports(1)
        self.node = NodeProcess(place.folder / "data", "node", SETTINGS | {"HOLDFAST_GRPC__PORT": str(port)})
        self.agent = AgentProcess(place.folder / "oak", "oak", port)
        self.reorgs, self.is_over = 0, asyncio.Event()

    async def begin(self, client: NodeSocket) -> None:
        self.agent.up()
        await client.mint(bytes(32), "alice", 10**6)
        async with asyncio.timeout(PATIENCE_S):
            while not (found := (await client.call("aicf.listProviders"))["providers"]):
                await asyncio.sleep(0.05)
        await client.mint(b"\1" * 32, "oak", 10_000)
        id_ = found[0]["provider"]["id"]
        await client.call("provider.stake", provider_id=id_, amount=10_000, request="02" * 32)

    async def disturb(self) -> None:
        """Roll back one block, two, … down to what is final, over and over; jobs go on meanwhile."""
        async with NodeSocket(self.node.data, PATIENCE_S) as client:
            depth = 1
            while not self.is_over.is_set():
                head = (await client.call("chain.getHead"))["block"]["height"]
                try:
                    await client.call("chain.rollBack", height=max(0, head - depth))
                    self.reorgs += head > 0
                except NodeRefused as no:
                    if no.rule != "CHN-005":  # else it became final meanwhile
                        raise
                depth = depth % FINAL_AFTER + 1
                await asyncio.sleep(0.15)

    async def blocks(self, client: NodeSocket, count: int) -> None:
        first = (await client.call("chain.getHead"))["block"]["height"]
        async with asyncio.timeout(PATIENCE_S):
            while (await client.call("chain.getHead"))["block"]["height"] < first + count:
                await asyncio.sleep(0.05)


@pytest.fixture
async def network(place: Place) -> AsyncIterator[NodeUnderReorgs]:
    made = NodeUnderReorgs(place)
    yield made
    made.agent.end()
    made.node.end()


@pytest.mark.timeout(240)
@pytest.mark.rule("RES-005", "RES-006", "RET-001", "RET-002", "CHN-003", "CHN-004", "CHN-006", "ESC-001")
async def test_reorgs_beside_jobs_evidence_reads_and_retention_lose_nothing(network: NodeUnderReorgs) -> None:
    await network.node.up()
    data = network.node.data
    async with NodeSocket(data, PATIENCE_S) as client, AsyncClient(data, timeout_s=PATIENCE_S) as requester:
        await network.begin(client)
        disturbing = asyncio.create_task(network.disturb())
        payloads = [{"kind": "AI", "spec": {"model": "echo", "prompt": prompt}} for prompt in PROMPTS]
        tasks = [each.task_id for each in await requester.enqueue_many(payloads, 100, caller="alice")]
        before = [await requester.wait(task) for task in tasks]  # each was readable once, whatever came after that
        while network.reorgs < 2 * FINAL_AFTER:
            await asyncio.sleep(0.05)
        network.is_over.set()
        await disturbing
        await network.blocks(client, 2 * FINAL_AFTER)

        # Every result is what it was when it was first read, at whatever height; its bytes are all there.
        for task, prompt, first in zip(tasks, PROMPTS, before, strict=True):
            found = await requester.get_result(task)
            same = ("task_id", "result_digest", "proof_nullifier", "result_size", "da_commitment", "charged")
            assert [getattr(found, name) for name in same] == [getattr(first, name) for name in same]
            assert await requester.result(task) == prompt.encode()
        assert len({each.proof_nullifier for each in before}) == len(tasks)

        # Each is used once, each was paid once, and evidence came in all the while.
        await client.call("cap.consumeResult", task_id=tasks[0], caller="alice", nonce=1)
        with pytest.raises(NodeRefused, match="RES-005"):
            await client.call("cap.consumeResult", task_id=tasks[0], caller="alice", nonce=2)
        charged = sum(each.charged for each in before)
        await network.blocks(client, FINAL_AFTER + 1)
        alice, oak = await client.account("alice"), await client.account("oak")
        assert (alice["available"], alice["held"], alice["pending"]) == (10**6 - charged, 0, 0)
        assert oak["available"] + oak["pending"] == charged
        sessions = (await client.call("evidence.listSessions"))["sessions"]
        assert sum(each["acked"] for each in sessions) > len(tasks)

        # Without an archive only the store has let bytes go: the disk has them all.
        await client.call("gc.run", tier="hot")
        passes = (await client.call("gc.getStatus"))["passes"]
        assert [each["results"] for each in passes] == [len(tasks), 0, 0, 0, 0]

    # All that is stored agrees, and the blocks computed anew, orphaned ones among them, are those that were lived.
    assert await network.node.stop() == 0
    for words in (("db", "check"), ("chain", "replay")):
        said = await asyncio.to_thread(holdfast, *words, "--data", network.node.data, environ=SETTINGS)
        assert said.code == 0, said
