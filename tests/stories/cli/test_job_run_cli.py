"""A job from the command line to its output: run, waited for, again, with abbreviated ids."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.loopback_ports import free_ports
from tests.stories.agent_process import AgentProcess
from tests.stories.cli_runner import FAST_CHAIN, WITHIN_S, CliNode, running_cli_node

RUN = ("job", "run", "--model", "echo", "--caller", "alice", "--max-fee", 100)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CliNode]:
    """With one provider, oak, which has work."""
    (port,) = free_ports(1)
    settings = {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(port)}
    agent = AgentProcess(tmp_path / "oak", "oak", port)
    async with running_cli_node(tmp_path, settings, FAST_CHAIN) as running:
        try:
            agent.up()
            assert (await running.run("account", "mint", "alice", 10_000)).code == 0
            end = time.monotonic() + WITHIN_S
            while (staked := await running.run("provider", "stake", "oak", 10_000, "--mint")).code:
                assert time.monotonic() < end, staked.err
                await asyncio.sleep(0.1)
            yield running
        finally:
            agent.end()


@pytest.mark.timeout(180)
@pytest.mark.rule("RES-009", "JOB-006", "EVT-002")
async def test_a_job_is_run_for_its_output_and_again_by_the_beginning_of_its_id(node: CliNode, tmp_path: Path) -> None:
    done = await node.run(*RUN, "--prompt", "hello")
    assert (done.code, done.out) == (0, "hello"), done.err
    task = done.err.split()[1]
    assert (await node.run("job", "output", task[:8])).out == "hello"
    assert (await node.run("result", "read", task[:8])).out == "hello"
    assert (await node.run("job", "again", task[:8])).out == "hello"
    token = (await node.run("key", "create", "--account", "alice")).out.strip()
    later = (
        await node.run_over_http(token, "job", "run", "--model", "echo", "--prompt", "sea", "--no-wait")
    ).out.strip()
    waited = await node.run_over_http(token, "job", "wait", later[:10], "--output", tmp_path / "out")
    assert (waited.code, (tmp_path / "out").read_bytes()) == (0, b"sea")
    assert (await node.run_over_http(token, "job", "wait", later)).out.split()[0] == later
    other = (await node.run("key", "create", "--account", "bob")).out.strip()
    assert (await node.run_over_http(other, "job", "again", task[:8])).code == 77
    assert (await node.run_over_http(other, "job", "output", task[:8])).code == 77
    for words in (("job", "show", task[:3]), ("job", "output", "xyz"), ("job", "wait", "")):
        assert (await node.run(*words)).code == 2, words
    missing = await node.run("job", "cancel", "f" * 12)
    assert (missing.code, "no job" in missing.err) == (1, True)
    await shows_the_network(node, task)


async def shows_the_network(node: CliNode, task: str) -> None:
    """What one looks at meanwhile."""
    offered = (await node.run("models", "--json")).json["offers"]
    assert [(each["kind"], each["name"], each["providers"]) for each in offered] == [
        ("AI", "echo", 1),
        ("AI", "sleep", 1),
    ]
    assert "echo" in (await node.run("models", "--kind", "AI")).out
    assert (await node.run("models", "--kind", "QUANTUM")).out.splitlines()[1:] == []
    await node.wait_tables()
    statement = await node.run("account", "statement", "alice", "--csv")
    rows = list(csv.DictReader(io.StringIO(statement.out)))
    assert len(rows) == 3
    assert {(row["entry"], row["with"], row["amount"]) for row in rows} == {("job", "oak", "-3")}
    assert task in {row["reference"] for row in rows}
    top = (await node.run("top")).out
    assert all(word in top for word in ("block", "leases 0", "p99 wait", "completed 3", "oak")), top


@pytest.mark.timeout(120)
@pytest.mark.rule("MAT-002")
async def test_a_job_that_no_provider_fits_waits_and_ends_by_its_own_reason(node: CliNode) -> None:
    late = await node.run(*RUN, "--prompt", "x", "--label", "gpu=a100", "--timeout", "1s")
    assert (late.code, late.out) == (75, "")
    assert "holdfast job wait" in late.err
    task = late.err.split()[1]
    assert "label gpu=(none), not a100" in (await node.run("job", "quote", task[:12])).out
    assert "label gpu=(none), not a100" in (await node.run("provider", "explain", "oak", task[:12])).out
    assert (await node.run("job", "cancel", task[:12])).code == 0
    ended = await node.run("job", "wait", task[:12])
    assert (ended.code, "Cancelled" in ended.err) == (1, True)
    for words in (("--label", "gpu"), ("--label", "a=1", "--label", "a=2"), ("--file", "x"), ("--timeout", "soon")):
        assert (await node.run(*RUN, "--prompt", "x", *words)).code == 2, words
