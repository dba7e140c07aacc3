"""Run-at and schedules as users have them: the command line and both clients, on a node with a key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.stories.cli_runner import CliNode, CliResult, running_cli_node
from tests.stories.node_process import QUIET_CHAIN
from typer.testing import CliRunner

from holdfast import AsyncClient, Client
from holdfast.cli import app
from holdfast.client.refusals import NotFoundError

WITHIN_S = 60.0
OFTEN = {"HOLDFAST_POLICY__SCHEDULE__INTERVAL_MS_MIN": "1000"}
WORK = ("--runtime", "report", "--arg", "daily", "--max-fee", "10")


async def run(node: CliNode, *words: object) -> CliResult:
    """In this process: a verb needs no interpreter of its own here."""
    command = [*map(str, words), "--data", str(node.node.data)]
    done = await asyncio.to_thread(CliRunner().invoke, app, command)
    return CliResult(done.exit_code, done.stdout, done.stderr)


async def token_of(node: CliNode, account: str) -> str:
    return (await run(node, "key", "create", "--account", account)).out.strip()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CliNode]:
    async with running_cli_node(tmp_path, OFTEN, chain=QUIET_CHAIN) as running:
        assert (await run(running, "account", "mint", "alice", 1_000)).code == 0
        yield running


async def fired(node: CliNode, name: str, least: int) -> dict[str, object]:
    """The schedule, once it has enqueued so many jobs."""
    end = time.monotonic() + WITHIN_S
    while True:
        shown: dict[str, object] = (
            await run(node, "job", "schedule", "show", name, "--caller", "alice", "--json")
        ).json
        if int(str(shown["fired"])) >= least:
            return shown
        assert time.monotonic() < end, shown
        await asyncio.sleep(0.2)


@pytest.mark.timeout(180)
@pytest.mark.rule("JOB-013", "JOB-014", "RPC-001")
async def test_schedules_and_times_of_jobs_on_the_command_line_and_in_both_clients(
    node: CliNode, tmp_path: Path
) -> None:
    """One node for all of it: to start one takes longer than the rest."""
    await a_job_waits_for_its_time(node)
    await both_clients_have_schedules_and_see_their_own_alone(node)
    (tmp_path / "in.txt").write_text("input")
    add = ("job", "schedule", "add", "often", "--every", "1s", *WORK, "--caller", "alice", "--runs", 2)
    made = (await run(node, *add, "--input", tmp_path / "in.txt", "--json")).json
    assert (made["state"], made["interval_ms"], made["payload"]["input"]["size"]) == ("ACTIVE", 1_000, 5)
    again = (await run(node, *add, "--input", tmp_path / "in.txt", "--json")).json
    assert again["id"] == made["id"]
    ended = await fired(node, "often", 2)
    assert (ended["state"], ended["reason"], ended["runs_left"]) == ("ENDED", "RUNS_DONE", 0)
    firings = ended["firings"]
    assert isinstance(firings, list)
    job = (await run(node, "job", "show", firings[0]["task_id"], "--json")).json
    assert (job["job"]["caller"], job["payload"]["spec"]["args"]) == ("alice", ["daily"])
    daily = ("job", "schedule", "add", "daily", "--cron", "0 3 * * mon-fri", "--offset", "+02:00", *WORK)
    assert "0 3 * * mon-fri +02:00" in (await run(node, *daily, "--caller", "alice")).out
    listed = (await run(node, "job", "schedule", "list")).out
    assert all(word in listed for word in ("often", "ENDED", "daily", "ACTIVE", "every 1s", firings[1]["task_id"][:12]))
    for verb, says in (("pause", "paused"), ("resume", "resumed"), ("remove", "removed")):
        assert says in (await run(node, "job", "schedule", verb, "daily", "--caller", "alice")).out
    gone = await run(node, "job", "schedule", "show", "daily", "--caller", "alice")
    assert (gone.code, "JOB-014: no schedule 'daily'" in gone.err) == (1, True)
    await what_is_wrong_is_named(node)


async def a_job_waits_for_its_time(node: CliNode) -> None:
    at = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    words = ("job", "enqueue", *WORK, "--caller", "alice")
    timed = await run(node, *words, "--at", at.isoformat())
    assert f"{at:%Y-%m-%d %H:%M:%S}Z" in timed.out
    task = timed.field("task_id")
    shown = (await run(node, "job", "show", task)).out
    assert f"until {at:%Y-%m-%d %H:%M:%S}Z, for its time" in shown
    assert f"it waits until {at:%Y-%m-%d %H:%M:%S}Z" in (await run(node, "job", "quote", task)).out
    soon = (await run(node, "job", "run", *WORK, "--caller", "alice", "--in", "2h", "--no-wait")).out.strip()
    job = (await run(node, "job", "show", soon, "--json")).json["job"]
    assert job["run_at_ms"] > job["enqueue_ms"] + 3_600_000
    for wrong in (("--at", "noon"), ("--in", "soon"), ("--in", "400d"), ("--in", "1h", "--at", at.isoformat())):
        refused = await run(node, *words, *wrong)
        assert (refused.code, refused.out) == (2, ""), (wrong, refused)


async def what_is_wrong_is_named(node: CliNode) -> None:
    add = ("job", "schedule", "add", "x", "--caller", "alice")
    for words, says in (
        ((*WORK,), "give one of them"),
        ((*WORK, "--cron", "61 * * * *"), "minute: '61' is not in 0 … 59"),
        ((*WORK, "--every", "1ms"), "interval_ms"),
        ((*WORK, "--every", "often"), "is not a duration"),
        ((*WORK, "--every", "1h", "--offset", "Berlin"), "is not ±HH:MM"),
        ((*WORK, "--every", "1h", "--until", "2001-01-01"), "until_ms"),
        (("--every", "1h"), "--runtime, --model or --file"),
    ):
        refused = await run(node, *add, *words)
        assert (refused.code, says in refused.err) == (2, True), (words, refused)


async def both_clients_have_schedules_and_see_their_own_alone(node: CliNode) -> None:
    alice, bob = await token_of(node, "alice"), await token_of(node, "bob")
    payload = {"kind": "COMPUTE", "spec": {"runtime": "report"}}
    async with AsyncClient(node.url, alice) as client:
        made = await client.schedules.create("nightly", payload, 10, cron="0 3 * * *")
        assert (made.cron, made.caller, made.state) == ("0 3 * * *", "alice", "ACTIVE")
        large = await client.schedules.create("large", payload, 10, cron="@daily", input=b"x" * 70_000)
        assert large.payload["input"]["size"] == 70_000
        assert [each.name async for each in client.schedules.list()] == ["nightly", "large"]
        await client.schedules.pause("nightly", reason="holiday")
        assert (await client.schedules.get(made.id)).reason == "holiday"
        receipt = await client.enqueue(payload, 10, not_before_ms=made.created_ms + 3_600_000)
        assert receipt.not_before_ms == made.created_ms + 3_600_000
    await asyncio.to_thread(another_tenant_has_nothing, node.url, bob, made.id)
    async with AsyncClient(node.url, alice) as client:
        await client.schedules.resume("nightly")
        await client.schedules.delete("nightly")
        assert [each.name async for each in client.schedules.list()] == ["large"]


def another_tenant_has_nothing(url: str, token: str, id_: str) -> None:
    with Client(url, token) as client:
        assert list(client.schedules.list()) == []
        for name in (id_, "nightly"):
            for method in (client.schedules.get, client.schedules.pause, client.schedules.delete):
                with pytest.raises(NotFoundError):
                    method(name)


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.rule("JOB-014")
async def test_a_killed_node_goes_on_with_its_schedules_and_fires_each_time_once(node: CliNode) -> None:
    add = ("job", "schedule", "add", "often", "--every", "1s", *WORK, "--caller", "alice")
    assert (await run(node, *add)).code == 0
    for least in (1, 3, 5):
        await fired(node, "often", least)
        await node.node.kill()
        await node.node.up()
    shown = await fired(node, "often", 7)
    await run(node, "job", "schedule", "pause", "often", "--caller", "alice")
    firings = shown["firings"]
    assert isinstance(firings, list)
    due = [each["due_ms"] for each in firings]
    assert due == sorted(set(due))
    await node.wait_tables()
    jobs = (await run(node, "job", "list", "--caller", "alice", "--json")).json["rows"]
    final = (await run(node, "job", "schedule", "show", "often", "--caller", "alice", "--json")).json
    assert len(jobs) == final["fired"]
