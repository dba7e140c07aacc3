"""The queue on the command line: paused and resumed; a policy that is adopted; jobs requeued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.stories.cli_runner import CliNode, holdfast, running_cli_node
from tests.stories.node_process import QUIET_CHAIN

ENQUEUE = ("--model", "m", "--prompt", "hi", "--caller", "alice")


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
async def test_a_policy_is_adopted_without_a_restart_and_no_start_reverts_it(tmp_path: Path) -> None:
    by_age = tmp_path / "by-age.toml"
    by_age.write_text("[policy.chain]\nblock_ms = 3600000\nidle_block_ms = 3600000\n[policy.priority]\nw_fee = 0\n")
    async with running_cli_node(tmp_path, chain=QUIET_CHAIN) as first:
        await first.run("account", "mint", "alice", 10_000)
        task = (await first.run("job", "enqueue", *ENQUEUE, "--max-fee", 900, "--json")).json["task_id"]
        before = (await first.run("job", "show", task, "--json")).json["job"]["priority"]
        assert "nothing was changed" in (await first.run("policy", "apply", by_age, "--dry-run")).out
        assert (await first.run("job", "show", task, "--json")).json["job"]["priority"] == before
        adopted = await first.run("policy", "apply", by_age)
        assert (adopted.code, "priority.w_fee: 550 → 0" in adopted.out) == (0, True), adopted.err
        after = (await first.run("job", "show", task, "--json")).json["job"]["priority"]
        assert after != before
        assert "counts already" in (await first.run("policy", "apply", by_age)).out
        by_age.write_text("[policy.priority]\nw_fe = 0\n")
        wrong = await first.run("policy", "apply", by_age)
        assert (wrong.code, "did you mean policy.priority.w_fee" in wrong.err) == (2, True)
        await first.node.stop()
    async with running_cli_node(tmp_path, chain=QUIET_CHAIN) as second:  # settings as at the first start
        assert (await second.run("job", "show", task, "--json")).json["job"]["priority"] == after
        shown = (await second.run("policy", "show")).out.splitlines()
        assert [line.split() for line in shown if "priority.w_fee" in line] == [["*", "priority.w_fee", "0"]]
        adoptions = (await second.run("policy", "history", "--json")).json["adoptions"]
        assert [each["by"] for each in adoptions] == ["local", "init"]
        assert adoptions[0]["changes"] == {"priority.w_fee": [550, 0]}
        assert "priority.w_fee: 550 → 0" in (await second.run("policy", "history")).out
        assert (await second.node.stop()) == 0
    assert "policy_differs" in second.node.log()
    found = await second.run_offline("db", "check")
    assert found.code == 0, found.err


@pytest.mark.rule("CHN-006", "ESC-003")
async def test_a_node_whose_chain_id_or_kind_of_network_was_changed_does_not_start(tmp_path: Path) -> None:
    async with running_cli_node(tmp_path, chain=QUIET_CHAIN) as first:
        await first.run("account", "mint", "alice", 100)
        await first.run("job", "enqueue", *ENQUEUE, "--max-fee", 1)
        await first.node.stop()
        changes = {
            "CHN-006": ("CHAIN_ID", "99", "1337, not 99"),
            "ESC-003": ("NETWORK", "production", "development, not"),
        }
        for rule, (name, value, message) in changes.items():
            environ = {**QUIET_CHAIN, f"HOLDFAST_{name}": value}
            said = await asyncio.to_thread(holdfast, "up", "--data", first.node.data, environ=environ)
            assert (said.code, rule in said.err, f"made with {message}" in said.err) == (75, True, True), said.err
