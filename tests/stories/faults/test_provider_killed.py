"""What a stranger sees: two providers, jobs of both kinds, one killed in mid-lease, and its retry to the digit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.loopback_ports import free_ports
from tests.storage.stores import Place
from tests.stories.agent_process import AgentProcess
from tests.stories.cli_runner import FAST_CHAIN, CliNode, holdfast, running_cli_node
from tests.stories.node_process import on_postgres
from tests.stories.waiting_agent import circuit_after

from holdfast.client.node_socket import NodeSocket

WITHIN_S = 60.0
ECHOES = 10
SHORT_LEASES = {
    "HOLDFAST_POLICY__LEASE__QUANTUM_MS": "6000",
    "HOLDFAST_GRPC__ENABLED": "true",
}
"""What takes three minutes in earnest takes six seconds here, in which also a busy machine renews what it works on;
retries wait as long as they always do."""


class PatientAgent(AgentProcess):
    """An agent with an executor for circuits, which somebody plugged in."""

    module = "tests.stories.waiting_agent"


class NodeWithProviders:
    """A node and two providers, seen from outside."""

    def __init__(self, node: CliNode, agents: dict[str, PatientAgent]) -> None:
        self.node, self.agents = node, agents

    async def stake_providers(self) -> dict[str, str]:
        """Both are registered and have something at stake; their ids, and what people call them."""
        async with NodeSocket(self.node.node.data, WITHIN_S) as client, asyncio.timeout(WITHIN_S):
            while len(found := (await client.call("aicf.listProviders"))["providers"]) < len(self.agents):
                await asyncio.sleep(0.05)
        ids = {each["provider"]["id"]: each["provider"]["name"] for each in found}
        for id_ in ids:
            said = await self.node.run("provider", "stake", id_, 60_000, "--mint")
            assert said.code == 0, said.err
        assert (await self.node.run("account", "mint", "alice", 100_000)).code == 0
        return ids

    async def enqueue(self, kind: str, **spec: Any) -> str:
        words = ("job", "enqueue", "--caller", "alice", "--file", "-", "--max-fee", 100, "--json")
        said = await self.node.run(*words, stdin=json.dumps({"kind": kind, "spec": spec}))
        return str(said.json["task_id"])

    async def leases(self, task: str, count: int, *, is_done: bool) -> list[dict[str, Any]]:
        """Its leases so far, once there are this many and the last one is acknowledged, or done."""
        async with NodeSocket(self.node.node.data, WITHIN_S) as client, asyncio.timeout(WITHIN_S):
            while True:
                found: list[dict[str, Any]] = (await client.call("aicf.getJob", task_id=task))["leases"]
                if len(found) == count and (found[-1]["status"] == "COMPLETED" if is_done else found[-1]["acked_ms"]):
                    return found
                await asyncio.sleep(0.02)

    async def wait_lease_expired(self, lease_id: str) -> dict[str, Any]:
        """The event by which a lease expired, as every follower of the node's events gets it."""
        async with asyncio.timeout(WITHIN_S):
            async for event in NodeSocket(self.node.node.data, WITHIN_S).follow():
                if (event["type"], event["event"].get("id")) == ("leaseExpired", lease_id):
                    return dict(event["event"])
        raise AssertionError("it never ended")


@pytest.fixture
async def house(place: Place, store: str, tmp_path: Path) -> AsyncIterator[NodeWithProviders]:
    (port,) = free_ports(1)
    environ = on_postgres(place.address) if store == "postgres" else {}
    environ |= SHORT_LEASES | {"HOLDFAST_GRPC__PORT": str(port)}
    agents = {name: PatientAgent(tmp_path / name, name, port) for name in ("oak", "ash")}
    async with running_cli_node(tmp_path, environ, FAST_CHAIN) as node:
        try:
            for agent in agents.values():
                agent.up()
            yield NodeWithProviders(node, agents)
        finally:
            for agent in agents.values():
                agent.end()


@pytest.mark.timeout(150)
@pytest.mark.rule("LEA-005", "RTY-002", "RTY-003", "MAT-006")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def test_a_provider_killed_in_mid_lease_is_retried_at_the_predicted_time(
    house: NodeWithProviders, tmp_path: Path
) -> None:
    ids = await house.stake_providers()
    echoes = [await house.enqueue("AI", model="echo", prompt=f"{n}") for n in range(ECHOES)]
    gate = tmp_path / "go"
    circuit = await house.enqueue("QUANTUM", circuit=circuit_after(gate), shots=100, width=2, depth=3, gates=["h"])
    for echo in echoes:
        await house.leases(echo, 1, is_done=True)

    (lease,) = await house.leases(circuit, 1, is_done=False)
    house.agents[ids[lease["provider_id"]]].kill()
    gate.touch()
    first, second = await house.leases(circuit, 2, is_done=True)
    assert (first["status"], first["reason"]) == ("EXPIRED", "LEASE_EXPIRED")
    assert first["ended_ms"] >= first["t_deadline_ms"], "nobody loses a lease before its time"
    assert second["provider_id"] != first["provider_id"]

    closed = await house.wait_lease_expired(first["id"])
    told_ms = holdfast("compute", "backoff", stdin=json.dumps({"kind": "QUANTUM", "job_id": circuit, "failure": 0}))
    assert closed["not_before_ms"] - closed["at_ms"] == told_ms.json["delay_ms"]
    assert second["t_start_ms"] >= closed["not_before_ms"], "not a millisecond too early"

    audited = await house.node.run_offline("audit", "match", "--json")
    assert (audited.json["difference"], audited.json["assignments"]) == (None, ECHOES + 2)
