"""Three providers, of whom one lies: two of three agree and are paid, three of three never do, and anybody can tell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.result_node import SERVING
from tests.core.core_driver import ALICE
from tests.loopback_ports import free_ports
from tests.simulation.world import evict_final
from tests.storage.stores import Place
from tests.stories.cli_runner import CliNode, running_cli_node
from tests.stories.faults.test_provider_killed import PatientAgent
from tests.stories.lives.test_result_lives import ResultRun
from tests.stories.waiting_agent import circuit_after

from holdfast.client import AsyncClient
from holdfast.client.node_socket import NodeSocket
from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import TaskId, Tier
from holdfast.core.job.quorum import replica_id
from holdfast.core.match.messages import Match
from holdfast.core.proof.envelope import ProofType, packed_nullifier, quorum_body
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest
from holdfast.engine import queries

PATIENCE_S = 60.0
SHOTS = 100
TRUE = canonical({"counts": {"00": SHOTS}})
"""What the honest ones find, as soon as they may: the liar is the first."""
SETTINGS = {
    "HOLDFAST_GRPC__ENABLED": "true",
    "HOLDFAST_POLICY__PROVIDER__HEARTBEAT_MS": "1000",
}
CHAIN = {"HOLDFAST_POLICY__CHAIN__BLOCK_MS": "200", "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "1000"}


class LyingAgent(PatientAgent):
    """Another program that speaks the same language."""

    module = "tests.stories.lying_agent"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CliNode]:
    (port,) = free_ports(1)
    agents = [PatientAgent(tmp_path / "oak", "oak", port), PatientAgent(tmp_path / "ash", "ash", port)]
    agents.append(LyingAgent(tmp_path / "fir", "fir", port))
    async with running_cli_node(tmp_path, SETTINGS | {"HOLDFAST_GRPC__PORT": str(port)}, CHAIN) as running:
        try:
            for agent in agents:
                agent.up()
            await stake_providers(running, len(agents))
            yield running
        finally:
            for agent in agents:
                agent.end()


async def stake_providers(node: CliNode, count: int) -> None:
    async with NodeSocket(node.node.data, PATIENCE_S) as client, asyncio.timeout(PATIENCE_S):
        while len(found := await providers(client)) < count:
            await asyncio.sleep(0.05)
    for each in found.values():
        said = await node.run("provider", "stake", each["id"], 60_000, "--mint")
        assert said.code == 0, said.err
    assert (await node.run("account", "mint", "alice", 1_000)).code == 0


async def providers(client: NodeSocket) -> dict[str, Any]:
    """By what people call them."""
    found = (await client.call("aicf.listProviders"))["providers"]
    return {each["provider"]["name"]: each["provider"] for each in found}


async def enqueued(node: CliNode, quorum: str, gate: Path) -> str:
    """A circuit that honest providers have run when the gate is there."""
    spec = {"circuit": circuit_after(gate), "shots": SHOTS, "width": 2, "depth": 3, "gates": ["h"]}
    words = ("job", "enqueue", "--caller", "alice", "--file", "-", "--quorum", quorum, "--max-fee", 100)
    return (await node.run(*words, stdin=json.dumps({"kind": "QUANTUM", "spec": spec}))).field("task_id")


async def wait_first_answer(client: NodeSocket, task: str) -> None:
    """Until somebody has answered, who can only be the liar."""
    async with asyncio.timeout(PATIENCE_S):
        while not any(each["digest"] for each in (await client.job(task))["replicas"]):
            await asyncio.sleep(0.05)


async def ended(client: NodeSocket, task: str) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while (shown := await client.job(task))["job"]["ended_ms"] is None:
            await asyncio.sleep(0.05)
    return shown


@pytest.mark.timeout(180)
@pytest.mark.rule("LEA-009", "PRF-002", "ESC-001", "MAT-006")
async def test_two_honest_providers_outvote_one_that_lies_and_alone_they_are_paid(
    node: CliNode, tmp_path: Path
) -> None:
    gate = tmp_path / "go"
    task = await enqueued(node, "2/3", gate)
    async with NodeSocket(node.node.data, PATIENCE_S) as client:
        await wait_first_answer(client, task)
        gate.touch()
        async with AsyncClient(node.node.data, timeout_s=PATIENCE_S) as requester:
            assert await requester.result(await requester.wait(task)) == TRUE
        shown, known = await client.job(task), await providers(client)
        accounts = {name: await client.account(name) for name in known}
    right = result_digest(TRUE).hex()
    by_id = {each["provider_id"]: each for each in shown["replicas"]}
    assert by_id.keys() == {each["id"] for each in known.values()}, "on distinct providers"
    assert {name: by_id[known[name]["id"]]["digest"] == right for name in known} == {
        "oak": True,
        "ash": True,
        "fir": False,
    }
    assert {name: by_id[known[name]["id"]]["charged"] for name in known} == {"oak": 3, "ash": 3, "fir": None}
    paid = {name: each["available"] + each["pending"] for name, each in accounts.items()}
    assert paid == {"oak": 3, "ash": 3, "fir": 0}
    assert known["fir"]["health_ppm"] < known["oak"]["health_ppm"] == 1_000_000
    assert known["fir"]["slashed"] == 0
    assert shown["result"]["proof_nullifier"] == check_recomputed(task, shown)
    listed = (await node.run("job", "show", task)).out
    assert "replicas, of which 2 of 3 must agree" in listed
    assert all(id_ in listed for id_ in by_id)
    await check_replicas_listed_on_request(node, task)
    audited = await node.run("audit", "match")
    assert audited.code == 0, audited.err


def check_recomputed(task: str, shown: dict[str, Any]) -> str:
    """PRF-001: from what anybody is shown."""
    job, digest = shown["job"], shown["result"]["result_digest"]
    agreeing = [each for each in shown["replicas"] if each["state"] == "COMPLETED" and each["digest"] == digest]
    votes = [(each["index"], bytes.fromhex(each["lease_id"]), bytes.fromhex(each["provider_id"])) for each in agreeing]
    told_ = (job["quorum_n"], job["quorum_m"], bytes.fromhex(digest), shown["result"]["result_size"])
    body = quorum_body(bytes.fromhex(task), *told_, votes)
    return packed_nullifier(ProofType.QUANTUM, 0, body).hex()


async def check_replicas_listed_on_request(node: CliNode, task: str) -> None:
    assert [row["id"] for row in (await node.run("job", "list", "--json")).json["rows"]] == [task]
    rows = (await node.run("job", "list", "--replicas", "--oldest-first", "--json")).json["rows"]
    assert [row["parent"] for row in rows] == ["", task, task, task]
    replica = (await node.run("job", "show", rows[1]["id"])).out
    assert f"replica_of  {task}" in replica


@pytest.mark.timeout(180)
@pytest.mark.rule("LEA-009", "RTY-001")
async def test_where_all_must_agree_and_one_lies_the_job_fails_and_the_money_comes_back(
    node: CliNode, tmp_path: Path
) -> None:
    gate = tmp_path / "go"
    gate.touch()
    task = await enqueued(node, "3/3", gate)
    async with NodeSocket(node.node.data, PATIENCE_S) as client:
        shown = await ended(client, task)
        account = await client.account("alice")
    assert (shown["job"]["state"], shown["job"]["reason"]) == ("FAILED", "QUORUM_LOST")
    assert account["available"] + account["pending"] == 1_000
    await node.wait_tables()
    dead = (await node.run("job", "dead-letter", "list", "--wide")).out
    assert task in dead
    assert "QUORUM_LOST" in dead


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
@pytest.mark.rule("LEA-009", "ENG-003", "ENG-004", "RES-006")
async def test_either_store_has_the_job_its_replica_and_its_pay_over_a_restart_and_a_reorg(
    store: str, place: Place
) -> None:
    story = ResultRun(place, store, SERVING)
    await story.engine.start()
    try:
        await story.prepare()
        task = await run_quorum_of_one(story)
        replica = replica_id(task, 0)
        await story.seal()
        await story.restart()
        await story.roll_back(1)
        await story.seal(14)
        await evict_final(story.engine)
        assert story.engine.undurable_state.queue.jobs == {}
        job, row = await queries.job(story.engine, task), await queries.job(story.engine, replica)
        assert job is not None
        assert row is not None
        assert (job.quorum_n, job.quorum_m, job.charged, job.settled_height) == (1, 1, 2, 2)
        assert (row.parent, row.parent_event, row.charged, row.settled_height) == (task, job.event, 2, 2)
        assert await queries.spec(story.engine, row) == await queries.spec(story.engine, job)
        listed = await queries.page(story.engine, "job", {"parent": b""}, 0, 10)
        assert [each.id for each in listed.rows] == [task]
        await story.check_invariants()
    finally:
        await story.end()


async def run_quorum_of_one(story: ResultRun) -> TaskId:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "quorum": {"n": 1, "m": 1}}
    command = build_enqueue(story.engine.policy, ALICE, Tier.FREE, payload, 100, 77)
    assert isinstance(command, Enqueue)
    await story.do(command)
    await story.do(Match())
    task = next(job.id for job in story.engine.undurable_state.queue.jobs.values() if job.quorum_m)
    await story.finish(story.proof(replica_id(task, 0)))
    return task


@pytest.mark.rule("LEA-009", "JOB-003")
async def test_an_empty_quorum_is_refused_with_its_path(tmp_path: Path) -> None:
    async with running_cli_node(tmp_path) as running:
        ask = ("job", "enqueue", "--caller", "alice", "--model", "echo", "--prompt", "hi", "--quorum")
        for quorum, says in {
            "1/2": "payload.quorum.n: 1 of 2",
            "4/3": "payload.quorum.n: 4 of 3",
            "2": "--quorum",
        }.items():
            said = await running.run(*ask, quorum)
            assert said.code == 2
            assert says in said.err
