"""A provider changes its key and stays who it is, at a real node; an interrupted change is taken up again (PRV-003)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.in_process_agent import wait_until
from tests.loopback_ports import free_ports
from tests.stories.agent_process import AgentProcess
from tests.stories.forked_command import run_program
from tests.stories.node_process import NodeProcess

from holdfast.adapters.keys.signing import SigningKey
from holdfast.client import AsyncClient
from holdfast.client.node_socket import NodeSocket
from holdfast.core.provider.model import provider_id
from holdfast.spool import Spool

PATIENCE_S = 60.0


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[NodeProcess]:
    (port,) = free_ports(1)
    quick = {
        "HOLDFAST_GRPC__ENABLED": "true",
        "HOLDFAST_GRPC__PORT": str(port),
        "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "100",
        "HOLDFAST_POLICY__PROVIDER__HEARTBEAT_MS": "5000",
    }
    made = NodeProcess(tmp_path / "data", "node", quick)
    made.port = port  # type: ignore[attr-defined]
    try:
        await made.up()
        yield made
    finally:
        made.end()


@pytest.fixture
def agent(node: Any, tmp_path: Path) -> Any:
    made = AgentProcess(tmp_path / "oak", "oak", node.port)
    yield made
    made.end()


def run_rotate(agent: AgentProcess) -> subprocess.CompletedProcess[str]:
    return run_program("agent", "rotate-key", "--node", f"127.0.0.1:{agent.port}", "--data", agent.data)


def key_of(agent: AgentProcess, name: str = "agent.pem") -> SigningKey:
    return SigningKey.load(agent.data / "keys" / name)


async def run_job(client: NodeSocket, data: Path, prompt: str) -> str:
    """A job that the only provider does; who did it."""
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": prompt}}
    async with AsyncClient(data, timeout_s=PATIENCE_S) as requester:
        receipt = await requester.enqueue(payload, 100, caller="alice", idempotency_key=prompt)
        assert prompt.encode() in await requester.result(await requester.wait(receipt))
    found: str = (await client.call("aicf.listProviders"))["providers"][0]["provider"]["id"]
    return found


async def channels(client: NodeSocket, sessions: int) -> set[str]:
    """Whose the sessions are, as soon as there are so many in the tables."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = (await client.call("evidence.listSessions", channel=None, limit=100, cursor=""))["sessions"]
            if len(found) >= sessions:
                return {each["channel"] for each in found}
            await asyncio.sleep(0.02)


async def start_with_stake(agent: AgentProcess, client: NodeSocket) -> None:
    """Registered with its first key, and with enough at stake."""
    agent.up()
    await wait_until(lambda: "registered as" in agent.log())
    await client.mint(bytes(32), "alice", 10_000)
    await client.mint(b"\1" * 32, "oak", 10_000)
    id_ = provider_id(key_of(agent).public).hex()
    await client.call("provider.stake", provider_id=id_, amount=10_000, request=(b"\1" * 32).hex())


@pytest.mark.rule("PRV-003")
async def test_an_agent_with_a_changed_key_is_the_same_provider_and_goes_on_working(
    node: NodeProcess, agent: AgentProcess
) -> None:
    async with NodeSocket(node.data, PATIENCE_S) as client:
        await start_with_stake(agent, client)
        first = key_of(agent)
        id_ = await run_job(client, node.data, "before")
        assert await agent.stop() == 0
        said = run_rotate(agent)
        assert said.returncode == 0, said.stderr
        assert f"provider {id_}" in said.stdout
        assert key_of(agent).public != first.public
        assert key_of(agent).public.hex() in said.stdout
        agent.up()
        assert await run_job(client, node.data, "after") == id_
        assert await channels(client, 2) == {id_}
    assert await agent.stop() == 0
    assert agent.log().count(f"provider {id_}") == 2


@pytest.mark.rule("PRV-003")
async def test_a_change_that_was_interrupted_goes_on_from_where_it_was(node: NodeProcess, agent: AgentProcess) -> None:
    async with NodeSocket(node.data, PATIENCE_S) as client:
        await start_with_stake(agent, client)
        id_ = await run_job(client, node.data, "before")
        assert await agent.stop() == 0
        keys = agent.data / "keys"
        shutil.copy(keys / "agent.pem", keys / "before.pem")
        assert run_rotate(agent).returncode == 0
        (keys / "agent.pem").rename(keys / "agent.next.pem")  # as if it had died after the node's answer
        (keys / "before.pem").rename(keys / "agent.pem")
        following = key_of(agent, "agent.next.pem").public
        said = run_rotate(agent)
        assert said.returncode == 0, said.stderr
        assert key_of(agent).public == following, "the key that was begun with, no third one"
        assert not (keys / "agent.next.pem").exists()
        agent.up()
        assert await run_job(client, node.data, "after") == id_


@pytest.mark.rule("PRV-003")
async def test_the_key_of_a_running_agent_is_not_changed(node: NodeProcess, agent: AgentProcess) -> None:
    async with NodeSocket(node.data, PATIENCE_S) as client:
        await start_with_stake(agent, client)
        first = key_of(agent).public
        said = run_rotate(agent)
        assert said.returncode != 0
        assert "another agent works in" in said.stderr
        assert key_of(agent).public == first
        await run_job(client, node.data, "still")


@pytest.mark.rule("PRV-003")
async def test_a_key_is_not_changed_while_evidence_waits_that_the_old_one_has_signed(
    node: NodeProcess, agent: AgentProcess
) -> None:
    async with NodeSocket(node.data, PATIENCE_S) as client:
        await start_with_stake(agent, client)
        id_ = await run_job(client, node.data, "before")
    assert await agent.stop() == 0
    spool = Spool.open(id_, "999999999999999", root=agent.data / "spool")
    assert isinstance(spool, Spool)
    spool.emit("LEASE_COMPLETED", {})  # of an agent that was killed before it could send it
    spool.close()
    said = run_rotate(agent)
    assert said.returncode != 0
    assert "not delivered to the node yet" in said.stderr
