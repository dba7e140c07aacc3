"""Many jobs from `enqueue_many`, consumed by `as_completed` over HTTP, while the node and its agents are killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from tests.counts import counts
from tests.loopback_ports import free_ports
from tests.storage.stores import Place
from tests.stories.agent_process import AgentProcess
from tests.stories.cli_runner import holdfast
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast import AsyncClient
from holdfast.client import NodeRefused
from holdfast.client.answers import JobReceipt
from holdfast.client.node_socket import NodeSocket
from holdfast.client.refusals import ForbiddenError

JOBS = counts(400, 10_000)
KILLS = counts(3, 12)
PATIENCE_S = 120.0
PROVIDERS = ("oak", "elm")
SETTINGS = {
    "HOLDFAST_GRPC__ENABLED": "true",
    "HOLDFAST_HTTP__ENABLED": "true",
    "HOLDFAST_HTTP__KEY_PER_S": "100000",
    "HOLDFAST_HTTP__KEY_BURST": "100000",
    "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "100",
    "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "1000",
    "HOLDFAST_POLICY__LEASE__AI_MS": "4000",
    "HOLDFAST_POLICY__LEASE__ACK_TIMEOUT_MS": "2000",
    "HOLDFAST_POLICY__RETRY__BASE_AI_MS": "200",
    "HOLDFAST_POLICY__RETRY__FAILURES_MAX": "50",
    "HOLDFAST_POLICY__PROVIDER__HEARTBEAT_MS": "1000",
    "HOLDFAST_POLICY__QUOTA__AI_UNITS_PER_EPOCH": "1000000",
}


class Network:
    """A node, two agents, and keys of two accounts."""

    def __init__(self, place: Place, store: str) -> None:
        self.grpc, self.http = free_ports(2)
        ports = {"HOLDFAST_GRPC__PORT": str(self.grpc), "HOLDFAST_HTTP__PORT": str(self.http)}
        settings = SETTINGS | ports | (on_postgres(place.address) if store == "postgres" else {})
        self.node = NodeProcess(place.folder / "data", "node", settings)
        self.agents = [AgentProcess(place.folder / name, name, self.grpc) for name in PROVIDERS]
        self.random = random.Random(20)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    async def begin(self) -> dict[str, str]:
        """Everything runs; the tokens of alice and bob."""
        await self.node.up()
        for agent in self.agents:
            agent.up()
        async with NodeSocket(self.node.data, PATIENCE_S) as client:
            await client.mint(bytes(32), "alice", 10**9)
            async with asyncio.timeout(PATIENCE_S):
                while len(found := (await client.call("aicf.listProviders"))["providers"]) < len(PROVIDERS):
                    await asyncio.sleep(0.05)
            for number, view in enumerate(found, start=1):
                request = (bytes([number]) * 32).hex()
                await client.call("account.mint", id=request, owner=view["provider"]["account"], amount=10_000)
                await client.call("provider.stake", provider_id=view["provider"]["id"], amount=10_000, request=request)
        words = ("key", "create", "--data", self.node.data, "--account")
        made = {account: await asyncio.to_thread(holdfast, *words, account) for account in ("alice", "bob")}
        return {account: result.out.strip() for account, result in made.items()}

    async def kill_something(self) -> None:
        if self.random.randrange(2):
            await self.node.kill()
            await self.node.up()
        else:
            agent = self.random.choice(self.agents)
            agent.kill()
            agent.up()

    def end(self) -> None:
        for agent in self.agents:
            agent.end()
        self.node.end()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def network(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[Network]:
    made = Network(Place(place.folder, place.server), request.param)
    yield made
    made.end()


@pytest.mark.timeout(counts(240, 1_500))
@pytest.mark.rule("JOB-002", "JOB-006", "JOB-010", "EVT-002", "RES-009")
async def test_as_many_outputs_as_jobs_though_node_and_agents_are_killed(network: Network) -> None:
    tokens = await network.begin()
    payloads = [{"kind": "AI", "spec": {"model": "echo", "prompt": f"job {number}"}} for number in range(JOBS)]
    async with AsyncClient(network.url, tokens["alice"], timeout_s=PATIENCE_S) as client:
        enqueuing = asyncio.create_task(client.enqueue_many(payloads, 100))
        await network.kill_something()
        receipts = await enqueuing
        assert len({each.task_id for each in receipts}) == JOBS
        outputs: dict[str, bytes] = {}
        consuming = asyncio.create_task(consume(client, receipts, outputs))
        for kill in range(1, KILLS + 1):
            while len(outputs) < kill * JOBS // (KILLS + 1) and not consuming.done():
                await asyncio.sleep(0.01)
            await network.kill_something()
        await consuming
        assert outputs == {each.task_id: f"job {number}".encode() for number, each in enumerate(receipts)}
        assert await client.result(receipts[0], verify=True) == b"job 0"
        key = (await client.call("chain.getHead"))["block"]["proposer"]
        assert await client.result(receipts[0], verify=[key]) == b"job 0"
    await sees_nothing(network, tokens["bob"], receipts)


async def consume(client: AsyncClient, receipts: list[JobReceipt], outputs: dict[str, bytes]) -> None:
    async for outcome in client.as_completed(receipts):
        assert outcome.task_id not in outputs, "each is told once"
        outputs[outcome.task_id] = await client.result(outcome.unwrap())


async def sees_nothing(network: Network, token: str, receipts: list[JobReceipt]) -> None:
    """JOB-010: another tenant learns neither what the jobs were nor what came of them."""
    async with AsyncClient(network.url, token, timeout_s=PATIENCE_S) as bob:
        record = await bob.get_result(receipts[0])
        assert (record.caller, record.provider_id, record.charged) == ("", "", 0)
        with pytest.raises(ForbiddenError):
            await bob.result(record)
        shown = await bob.call("cap.getJob", task_id=receipts[0].task_id)
        assert shown["payload"] is None
        assert "caller" not in shown["job"]
        with pytest.raises(NodeRefused):
            await bob.call("cap.listJobs", caller="alice")
        last = (await bob.status()).event
        await bob.call("cap.findJob", text=receipts[0].task_id[:16])
        async for event in bob.events(after=0):
            assert event.type.startswith(("block", "key")), event
            if event.number >= last:  # blocks are sealed on, also when nothing happens
                break
