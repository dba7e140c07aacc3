"""The queue on the command line: paused and resumed; policies that change between two starts; jobs requeued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.stories.cli_runner import CliNode, holdfast, running_cli_node
from tests.stories.node_process import QUIET_CHAIN

ENQUEUE = ("--model", "m", "--prompt", "hi", "--caller", "alice")
BY_AGE = {
    "HOLDFAST_POLICY__PRIORITY__W_FEE": "0",
    "HOLDFAST_POLICY__PRIORITY__W_SIZE": "0",
    "HOLDFAST_POLICY__PRIORITY__W_TIER": "0",
}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CliNode]:
    async with running_cli_node(tmp_path, chain=QUIET_CHAIN) as running:
        assert (await running.run("account", "mint", "alice", 10_000)).code == 0
        yield running


@pytest.mark.rule("JOB-008")
async def test_a_kind_is_paused_seen_to_be_paused_and_resumed(node: CliNode) -> None:
    paused = await node.run("queue", "pause", "AI", "--reason", "new model")
    assert (paused.code, paused.out.startswith("AI is paused (event ")) == (0, True)
    assert "as before" in (await node.run("queue", "pause", "AI")).out
    await node.run("job", "enqueue", *ENQUEUE)
    shown = await node.run("queue", "show")
    assert (shown.field("depth"), shown.field("leased")) == ("1", "0")
    assert shown.out.rstrip().endswith(": new model")
    assert (await node.run("queue", "resume", "AI")).out.startswith("AI is resumed")
    assert (await node.run("queue", "resume", "AI")).out == "AI was not paused\n"
    assert (await node.run("queue", "show", "--json")).json["paused"] == {}
    assert (await node.run("queue", "pause", "COAL")).code == 2


@pytest.mark.rule("RTY-001")
async def test_dead_letters_are_listed_and_only_they_are_requeued(node: CliNode) -> None:
    assert (await node.run("job", "dead-letter", "list", "--json")).json["rows"] == []
    task = (await node.run("job", "enqueue", *ENQUEUE, "--json")).json["task_id"]
    alive = await node.run("job", "dead-letter", "requeue", task)
    assert (alive.code, "QUEUED allows" in alive.err, "JOB-007" in alive.err) == (1, True, True)
    unknown = await node.run("job", "dead-letter", "requeue", "ab" * 32)
    assert (unknown.code, "RTY-001" in unknown.err) == (1, True)
    assert (await node.run("job", "dead-letter", "requeue", "--all")).out == "0 requeued\n"
    for words in ((), (task, "--all")):
        assert (await node.run("job", "dead-letter", "requeue", *words)).code == 2


@pytest.mark.rule("PRI-003")
async def test_a_policy_that_changed_between_two_starts_is_adopted_once_and_ranks_what_waits(tmp_path: Path) -> None:
    async with running_cli_node(tmp_path, chain=QUIET_CHAIN) as first:
        await first.run("account", "mint", "alice", 10_000)
        task = (await first.run("job", "enqueue", *ENQUEUE, "--max-fee", 900, "--json")).json["task_id"]
        before = (await first.run("job", "show", task, "--json")).json["job"]["priority"]
        await first.node.stop()
    for _ in range(2):
        async with running_cli_node(tmp_path, BY_AGE, QUIET_CHAIN) as second:
            job = (await second.run("job", "show", task, "--json")).json["job"]
            assert job["priority"] == -250 * (job["enqueue_ms"] * 10**9 // 3_600_000) != before
            assert (await second.node.stop()) == 0
    found = await second.run_offline("db", "check")
    assert found.code == 0, found.err


@pytest.mark.rule("CHN-006", "PRI-003")
async def test_a_node_whose_chain_id_was_changed_does_not_start(tmp_path: Path) -> None:
    async with running_cli_node(tmp_path, chain=QUIET_CHAIN) as first:
        await first.run("account", "mint", "alice", 100)
        await first.run("job", "enqueue", *ENQUEUE, "--max-fee", 1)
        await first.node.stop()
        said = await asyncio.to_thread(
            holdfast, "up", "--data", first.node.data, environ={**QUIET_CHAIN, "HOLDFAST_CHAIN_ID": "99"}
        )
    assert (said.code, "CHN-006" in said.err, "this chain has chain_id 1337, not 99" in said.err) == (75, True, True)
