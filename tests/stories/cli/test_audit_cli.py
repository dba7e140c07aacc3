"""Every assignment of a real node is decided again, beside it and after its end, on both stores; and quotes by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.loopback_ports import free_ports
from tests.storage.stores import Place
from tests.stories.agent_process import AgentProcess
from tests.stories.cli_runner import FAST_CHAIN, CliNode, running_cli_node
from tests.stories.node_process import on_postgres

from holdfast.client import AsyncClient
from holdfast.client.node_socket import NodeSocket

WITHIN_S = 40.0
JOBS = 30


class AuditedNode:
    """A node, and an agent that works for it."""

    def __init__(self, node: CliNode, agent: AgentProcess) -> None:
        self.node, self.agent = node, agent

    async def stake_agent(self) -> None:
        """With enough at stake, and its first heartbeat heard: it gets work from now on."""
        async with NodeSocket(self.node.node.data) as client:
            id_ = (await self.provider(client, is_active=False))["id"]
            said = await self.node.run("provider", "stake", id_, 10_000, "--mint")
            assert said.code == 0, said.err
            await self.provider(client, is_active=True)

    async def provider(self, client: NodeSocket, *, is_active: bool) -> dict[str, Any]:
        end = time.monotonic() + WITHIN_S
        while True:
            for each in (await client.call("aicf.listProviders"))["providers"]:
                if each["provider"]["status"] == "ACTIVE" or not is_active:
                    return dict(each["provider"])
            assert time.monotonic() < end, self.agent.log()
            await asyncio.sleep(0.05)

    async def run_jobs(self, jobs: int) -> None:
        """Submit this many jobs and wait until they are completed."""
        end = time.monotonic() + WITHIN_S
        async with AsyncClient(self.node.node.data) as client:
            for n in range(jobs):
                payload = {"kind": "AI", "spec": {"model": "echo", "prompt": f"{n}"}}
                await client.enqueue(payload, 100, caller="alice")
            while len((await client.call("cap.listJobs", status="COMPLETED"))["rows"]) < jobs:
                assert time.monotonic() < end, self.agent.log()
                await asyncio.sleep(0.05)


@pytest.fixture
async def house(place: Place, store: str, tmp_path: Path) -> AsyncIterator[AuditedNode]:
    port = free_ports(1)[0]
    environ = on_postgres(place.address) if store == "postgres" else {}
    environ |= {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(port)}
    async with running_cli_node(tmp_path, environ, FAST_CHAIN) as node:
        agent = AgentProcess(tmp_path / "oak", "oak", port)
        try:
            agent.up()
            assert (await node.run("account", "mint", "alice", 1_000_000)).code == 0
            yield AuditedNode(node, agent)
        finally:
            agent.end()


@pytest.mark.rule("MAT-006")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def test_a_node_is_audited_while_it_runs_and_when_it_has_ended(house: AuditedNode) -> None:
    await house.stake_agent()
    await house.run_jobs(JOBS)
    beside = await house.node.run_offline("audit", "match", "--json")
    assert beside.code == 0, beside.err
    assert (beside.json["difference"], beside.json["assignments"]) == (None, JOBS)
    await house.node.node.kill()
    after = await house.node.run_offline("audit", "match")
    assert (after.code, f"as the rules give it: {JOBS} assignments" in after.out) == (0, True), after
    part = await house.node.run_offline("audit", "match", "--from", beside.json["last"], "--json")
    assert (part.json["first"], part.json["assignments"]) == (beside.json["last"], 0)
    beyond = await house.node.run_offline("audit", "match", "--from", 10**9)
    assert (beyond.code, "MAT-006" in beyond.err) == (2, True)
    assert (await house.node.run_offline("audit", "match", "--from", 0)).code == 2


@pytest.mark.rule("JOB-008")
@pytest.mark.parametrize("store", ["sqlite"])
async def test_a_quote_says_who_could_and_why_nobody_could(house: AuditedNode) -> None:
    alone = await house.node.run("job", "quote", "--model", "echo")
    assert (alone.code, alone.out.splitlines()[1]) == (0, "0 of 0 waiting jobs are before it")
    await house.stake_agent()
    found = await house.node.run("job", "quote", "--model", "echo", "--units", 5)
    assert (found.code, found.out.splitlines()[0]) == (0, "1 of 1 providers could run it now")
    assert " 15 " in found.out, "its price for five units"
    nobody = await house.node.run("job", "quote", "--model", "nobody-has-this")
    assert "model does not fit" in nobody.out
    waits = await house.node.run("job", "enqueue", "--caller", "alice", "--model", "x", "--prompt", "hi", "--json")
    byid = await house.node.run("job", "quote", waits.json["task_id"], "--json")
    assert (byid.json["position"], byid.json["waiting"], byid.json["could"]) == (0, 1, 0)
    for words in ((), ("--model", "m", "--file", "f")):
        assert (await house.node.run("job", "quote", *words)).code == 2
