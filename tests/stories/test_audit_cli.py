"""Every assignment of a real node is decided again, beside it and after its end, on both stores; and quotes by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_ports
from tests.storage.stores import Place
from tests.stories.agent import AgentProcess
from tests.stories.node import on_postgres
from tests.stories.telling import OFTEN, Told, told

from holdfast.client import Client

WITHIN_S = 40.0
JOBS = 30


class House:
    """A node, and an agent that works for it."""

    def __init__(self, node: Told, agent: AgentProcess) -> None:
        self.node, self.agent = node, agent

    async def staked(self) -> None:
        """With enough at stake, and its first heartbeat heard: it gets work from now on."""
        async with Client(self.node.node.data) as client:
            id_ = (await self.provider(client, is_active=False))["id"]
            said = await self.node.say("provider", "stake", id_, 10_000, "--mint")
            assert said.code == 0, said.err
            await self.provider(client, is_active=True)

    async def provider(self, client: Client, *, is_active: bool) -> dict[str, Any]:
        end = time.monotonic() + WITHIN_S
        while True:
            for each in (await client.call("aicf.listProviders"))["providers"]:
                if each["provider"]["status"] == "ACTIVE" or not is_active:
                    return dict(each["provider"])
            assert time.monotonic() < end, self.agent.log()
            await asyncio.sleep(0.05)

    async def worked(self, jobs: int) -> None:
        """So many jobs handed in, and done."""
        end = time.monotonic() + WITHIN_S
        async with Client(self.node.node.data) as client:
            for n in range(jobs):
                payload = {"kind": "AI", "spec": {"model": "echo", "prompt": f"{n}"}}
                await client.enqueue(payload, 100, "alice")
            while len((await client.call("cap.listJobs", status="COMPLETED"))["rows"]) < jobs:
                assert time.monotonic() < end, self.agent.log()
                await asyncio.sleep(0.05)


@pytest.fixture
async def house(place: Place, store: str, tmp_path: Path) -> AsyncIterator[House]:
    port = free_ports(1)[0]
    environ = on_postgres(place.address) if store == "postgres" else {}
    environ |= {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(port)}
    async with told(tmp_path, environ, OFTEN) as node:
        agent = AgentProcess(tmp_path / "oak", "oak", port)
        try:
            agent.up()
            assert (await node.say("account", "mint", "alice", 1_000_000)).code == 0
            yield House(node, agent)
        finally:
            agent.end()


@pytest.mark.rule("MAT-006")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def test_a_node_is_audited_while_it_runs_and_when_it_has_ended(house: House) -> None:
    await house.staked()
    await house.worked(JOBS)
    beside = await house.node.say_offline("audit", "match", "--json")
    assert beside.code == 0, beside.err
    assert (beside.json["difference"], beside.json["assignments"], beside.json["older"]) == (None, JOBS, 0)
    await house.node.node.kill()
    after = await house.node.say_offline("audit", "match")
    assert (after.code, f"as the rules give it: {JOBS} assignments" in after.out) == (0, True), after
    part = await house.node.say_offline("audit", "match", "--from", beside.json["last"], "--json")
    assert (part.json["first"], part.json["assignments"]) == (beside.json["last"], 0)
    beyond = await house.node.say_offline("audit", "match", "--from", 10**9)
    assert (beyond.code, "MAT-006" in beyond.err) == (2, True)
    assert (await house.node.say_offline("audit", "match", "--from", 0)).code == 2


@pytest.mark.rule("JOB-008")
@pytest.mark.parametrize("store", ["sqlite"])
async def test_a_quote_says_who_could_and_why_nobody_could(house: House) -> None:
    alone = await house.node.say("job", "quote", "--model", "echo")
    assert (alone.code, alone.out.splitlines()[1]) == (0, "0 of 0 jobs that wait stand before it")
    await house.staked()
    found = await house.node.say("job", "quote", "--model", "echo", "--units", 5)
    assert (found.code, found.out.splitlines()[0]) == (0, "1 of 1 providers could run it now")
    assert " 15 " in found.out, "its price for five units"
    nobody = await house.node.say("job", "quote", "--model", "nobody-has-this")
    assert "model does not fit" in nobody.out
    waits = await house.node.say("job", "enqueue", "--caller", "alice", "--model", "x", "--prompt", "hi", "--json")
    byid = await house.node.say("job", "quote", waits.json["task_id"], "--json")
    assert (byid.json["position"], byid.json["waiting"], byid.json["could"]) == (0, 1, 0)
    for words in ((), ("--model", "m", "--file", "f")):
        assert (await house.node.say("job", "quote", *words)).code == 2
