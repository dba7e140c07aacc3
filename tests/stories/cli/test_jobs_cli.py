"""Jobs on the command line: handed over for a receipt, looked after, and the same request never taken in twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.stories.cli_runner import CliNode, running_cli_node
from tests.stories.node_process import QUIET_CHAIN

AI = {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}}
CIRCUIT = "OPENQASM 3; qubit[2] q; bit[2] c; c = measure q;"
QUANTUM = {"kind": "QUANTUM", "spec": {"circuit": CIRCUIT, "shots": 10, "width": 2, "depth": 3}}
ENQUEUE = ("--model", "m", "--prompt", "hi", "--max-fee", 100)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CliNode]:
    async with running_cli_node(tmp_path, chain=QUIET_CHAIN) as running:
        assert (await running.run("account", "mint", "alice", 1_000)).code == 0
        yield running


async def token_of(node: CliNode, account: str) -> str:
    return (await node.run("key", "create", "--account", account)).out.strip()


@pytest.mark.rule("JOB-006", "JOB-008")
async def test_a_job_is_submitted_shown_given_a_higher_fee_and_cancelled(node: CliNode) -> None:
    token = await token_of(node, "alice")
    receipt = await node.run_over_http(token, "job", "enqueue", *ENQUEUE)
    task = receipt.field("task_id")
    assert (receipt.field("caller"), receipt.field("reserved"), receipt.field("height")) == ("alice", "100", "1")
    shown = await node.run("job", "show", task)
    assert (shown.field("state"), shown.field("request_hash")) == ("QUEUED", receipt.field("request_hash"))
    assert json.loads(shown.field("payload")) == AI
    assert "admitted in block 1, event" in shown.out
    raised = await node.run_over_http(token, "job", "raise-fee", task, 150)
    assert "its maximum fee is 150 now" in raised.out
    assert (await node.run_over_http(token, "job", "cancel", task)).code == 0
    ended = await node.run("job", "show", task, "--events")
    assert ended.field("state") == "CANCELLED"
    assert "money settled in block 1: all refunded" in ended.out
    types = [line.split()[-1] for line in ended.out.splitlines() if line.startswith("  event")]
    assert types == ["jobAdmitted", "feeRaised", "jobCancelled"]
    again = await node.run_over_http(token, "job", "cancel", task)
    assert (again.code, "JOB-007" in again.err) == (1, True)


@pytest.mark.rule("JOB-002")
async def test_asked_again_with_the_same_key_or_nonce_it_is_the_first_receipt(node: CliNode) -> None:
    first = await node.run("job", "enqueue", *ENQUEUE, "--caller", "alice", "--idempotency-key", "mine", "--json")
    again = await node.run("job", "enqueue", *ENQUEUE, "--caller", "alice", "--idempotency-key", "mine", "--json")
    assert again.json == first.json | {"is_repeat": True}
    other = ("--model", "m", "--prompt", "other", "--max-fee", 100, "--caller", "alice")
    refused = await node.run("job", "enqueue", *other, "--idempotency-key", "mine")
    assert (refused.code, "JOB-002" in refused.err) == (1, True)
    drawn = await node.run("job", "enqueue", *ENQUEUE, "--caller", "alice")
    repeat = await node.run("job", "enqueue", *ENQUEUE, "--caller", "alice", "--nonce", drawn.field("nonce"))
    assert (repeat.field("task_id"), "its first receipt" in repeat.err) == (drawn.field("task_id"), True)
    while len(found := (await node.run("job", "list", "--oldest-first", "--json")).json["rows"]) < 2:
        await asyncio.sleep(0)  # lists follow the journal by a moment
    assert [row["id"] for row in found] == [first.json["task_id"], drawn.field("task_id")]


@pytest.mark.rule("JOB-003")
async def test_a_whole_payload_comes_from_a_file_or_from_standard_input(node: CliNode, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text(json.dumps(QUANTUM))
    words = ("job", "enqueue", "--caller", "alice", "--max-fee", 10)
    quantum = await node.run(*words, "--file", file)
    assert quantum.field("kind") == "QUANTUM"
    piped = await node.run(*words, "--file", "-", "--units", 3, "--ttl", "90m", stdin=json.dumps(AI))
    job = (await node.run("job", "show", piped.field("task_id"), "--json")).json["job"]
    assert (job["units"], job["expires_ms"] - job["enqueue_ms"]) == (3, 5_400_000)
    while (found := (await node.run("job", "list", "--kind", "QUANTUM", "--json")).json["rows"]) == []:
        await asyncio.sleep(0)  # lists follow the journal by a moment
    assert [row["id"] for row in found] == [quantum.field("task_id")]
    assert (await node.run("job", "list", "--status", "CANCELLED")).out.count("\n") == 1


WRONG = [
    ((), "--model: needed for an AI job", 2),
    (("--kind", "COMPUTE"), "--runtime: needed for a COMPUTE job", 2),
    (("--runtime", "wc", "--model", "echo"), "--model and --runtime: pass one of them", 2),
    (("--kind", "QUANTUM"), "a QUANTUM job is described in a file", 2),
    ((*ENQUEUE, "--file", "x.json"), "the payload is in the file", 2),
    (("--file", "nowhere.json"), "nowhere.json", 2),
    ((*ENQUEUE, "--ttl", "soon"), "--ttl: 'soon' is not a duration", 2),
    ((*ENQUEUE, "--caller", "bob"), "ESC-001: bob has 0 available, 100 requested", 1),
    (ENQUEUE, "caller: missing", 2),
]


@pytest.mark.rule("JOB-003", "JOB-005")
async def test_invalid_arguments_are_named_and_no_job_is_admitted(node: CliNode) -> None:
    for words, says, code in WRONG:
        refused = await node.run("job", "enqueue", *words)
        assert (refused.code, refused.out) == (code, ""), words
        assert says in refused.err
    floats = await node.run(
        "job", "enqueue", "--caller", "alice", "--file", "-", stdin='{"kind":"AI","spec":{"model":1.5}}'
    )
    assert (floats.code, "payload.spec.model" in floats.err) == (2, True)
    assert (await node.run("account", "show", "alice", "--json")).json["available"] == 1_000
    assert (await node.run("job", "show", "00" * 32)).code == 1


@pytest.mark.rule("SEC-001")
async def test_a_requester_acts_for_itself_alone_and_anonymous_for_no_one(node: CliNode) -> None:
    alice, bob = await token_of(node, "alice"), await token_of(node, "bob")
    task = (await node.run_over_http(alice, "job", "enqueue", *ENQUEUE)).field("task_id")
    assert (await node.run_over_http(bob, "job", "cancel", task)).code == 77
    assert (await node.run_over_http(bob, "job", "enqueue", *ENQUEUE, "--caller", "alice")).code == 77
    assert (await node.run_over_http(None, "job", "enqueue", *ENQUEUE)).code == 77
    stranger = await node.run_over_http(None, "job", "show", task)
    assert (stranger.field("state"), "(private)" in stranger.out) == ("QUEUED", True), "the chain's part needs no key"
    assert (await node.run_over_http(None, "job", "list")).code == 0


@pytest.mark.rule("ENG-006")
async def test_events_are_followed_from_a_cursor_by_type_and_over_a_restart(node: CliNode) -> None:
    for _ in range(3):
        await node.run("job", "enqueue", *ENQUEUE, "--caller", "alice")
    there = [json.loads(line) for line in (await node.run("events", "--no-follow")).out.splitlines()]
    assert [event["number"] for event in there] == list(range(1, len(there) + 1))
    jobs = (await node.run("events", "--no-follow", "--type", "jobAdmitted")).out.splitlines()
    assert [json.loads(line)["type"] for line in jobs] == ["jobAdmitted"] * 3
    cursor = there[-1]["number"]
    assert (await node.run("events", "--no-follow", "--after", cursor)).out == ""
    following = asyncio.create_task(node.run("events", "--after", cursor, "--limit", 2))
    assert await node.node.stop() == 0
    await node.node.up()
    await node.run("job", "enqueue", *ENQUEUE, "--caller", "alice")
    seen = [json.loads(line) for line in (await following).out.splitlines()]
    assert [event["number"] for event in seen] == [cursor + 1, cursor + 2]
    assert seen[0]["type"] == "ownershipTaken"
    no_cursor = await node.run("events", "--after", "1.x")
    assert (no_cursor.code, "number.index" in no_cursor.err) == (2, True)
    strange = await node.run("events", "--type", "jobAdmited")
    assert (strange.code, "did you mean jobAdmitted?" in strange.err) == (2, True)
