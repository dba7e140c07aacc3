"""The chain on the command line: looked at, proved, carried away, checked elsewhere, taken back, computed again."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.storage.stores import Place
from tests.stories.cli_runner import WITHIN_S, CliNode, holdfast, running_cli_node
from tests.stories.node_process import on_postgres

from holdfast.client.node_socket import NodeSocket

KEEPS = {
    "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "50",
    "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "50",
    "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": "20000",
    "HOLDFAST_POLICY__RESULT__RETAIN_HOT_BLOCKS": "20000",
}
"""Blocks come fast, and none is final within a test, however long a busy machine takes for it."""
OLDEST = ("--oldest-first", "--json")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CliNode]:
    async with running_cli_node(tmp_path, chain=KEEPS) as running:
        assert (await running.run("account", "mint", "alice", 1_000)).code == 0
        yield running


async def enqueued(node: CliNode, prompt: str = "hi") -> str:
    words = ("--caller", "alice", "--model", "m", "--prompt", prompt, "--max-fee", 100, "--json")
    return str((await node.run("job", "enqueue", *words)).json["task_id"])


async def proved(node: CliNode, task: str, file: Path) -> dict[str, Any]:
    said = await node.run("chain", "prove", task, "--wait")
    file.write_text(said.out)
    return said.json  # type: ignore[no-any-return]


def forge_export(folder: Path, target: Path, height: int, **change: object) -> Path:
    """A copy of an export in which one header says something else."""
    shutil.copytree(folder, target)
    file = target / "headers-000000000001.jsonl"
    lines = file.read_text().splitlines()
    lines[height - 1] = json.dumps(json.loads(lines[height - 1]) | change)
    file.write_text("\n".join(lines) + "\n")
    return target


@pytest.mark.rule("CHN-001")
async def test_an_exported_chain_is_verified_without_a_node_and_forgeries_are_found(
    node: CliNode, tmp_path: Path
) -> None:
    task = await enqueued(node)
    proof = await proved(node, task, tmp_path / "proof.json")
    key = proof["block"]["proposer"]
    said = await node.run("chain", "export", tmp_path / "headers")
    assert (said.code, key in said.out) == (0, True)
    count = json.loads((tmp_path / "headers/manifest.json").read_text())["blocks"]
    await node.node.kill()
    shutil.rmtree(node.node.data)  # no node, no data: only what was carried away
    whole = holdfast("chain", "verify", tmp_path / "headers")
    assert whole.code == 0
    assert f"valid: {count} blocks of chain 1337, 1 transaction" in whole.out
    assert (
        f"{key} from block 1 on, which you trust" in holdfast("chain", "verify", tmp_path / "headers", "--key", key).out
    )
    stranger = holdfast("chain", "verify", tmp_path / "headers", "--key", "00" * 32)
    assert (stranger.code, stranger.err) == (
        1,
        f"false: block 1 is signed by {key}, which is not one of the given keys\n",
    )
    false = holdfast("chain", "verify", forge_export(tmp_path / "headers", tmp_path / "lie", 2, time_ms=7))
    assert (false.code, false.out) == (1, "")
    assert false.err == "false: block 2 does not match its hash\n"
    torn = holdfast("chain", "verify", forge_export(tmp_path / "headers", tmp_path / "torn", 2, hash="zz"))
    assert (torn.code, "block 2: hash cannot be read" in torn.err) == (2, True)
    for nothing in (tmp_path / "nowhere", tmp_path):
        assert holdfast("chain", "verify", nothing).code == 2
    assert "does not have 32 bytes" in holdfast("chain", "verify", tmp_path / "headers", "--key", "00").err


@pytest.mark.rule("CHN-001")
async def test_a_proof_is_checked_without_a_node_and_a_changed_one_is_false(node: CliNode, tmp_path: Path) -> None:
    task, file = await enqueued(node), tmp_path / "proof.json"
    proof = await proved(node, task, file)
    key = proof["block"]["proposer"]
    good = holdfast("chain", "verify", file, "--key", key)
    assert good.code == 0
    assert good.out.startswith(f"true: admission of {task} is event ")
    proof["proof"]["leaf"] = proof["proof"]["leaf"].replace(task, "00" * 32)
    file.write_text(json.dumps(proof))
    false = holdfast("chain", "verify", file)
    assert (false.code, "the transaction is not in block" in false.err) == (1, True)
    file.write_text("nonsense")
    assert holdfast("chain", "verify", file).code == 2
    unknown = await node.run("chain", "prove", "00" * 32)
    assert (unknown.code, "no job" in unknown.err) == (1, True)


@pytest.mark.rule("CHN-001", "CHN-002")
async def test_what_one_sees_of_blocks_is_the_same_in_every_view_and_over_every_api(node: CliNode) -> None:
    await node.wait_height(3)
    shown = await node.run("chain", "show", 2)
    whole = (await node.run("chain", "show", 2, "--json")).json
    while len((listed := (await node.run_over_http(None, "chain", "list", "--limit", 2, *OLDEST)).json)["rows"]) < 2:
        await asyncio.sleep(0)  # lists follow the journal by a moment
    assert [row["height"] for row in listed["rows"]] == [1, 2]
    assert listed["rows"][1] == whole["block"]
    assert (shown.field("hash"), shown.field("parent")) == (whole["block"]["hash"], listed["rows"][0]["hash"])
    assert "more: --after" in (await node.run("chain", "list", "--limit", 2)).err
    head = await node.run_over_http(None, "chain", "head")
    assert int(head.field("height")) >= 3
    assert head.field("final") == "up to block 0"
    missing = await node.run("chain", "show", 10**6)
    assert (missing.code, "no block 1000000 on the active chain" in missing.err) == (1, True)
    live, remote = await node.run("chain", "verify"), await node.run_over_http(None, "chain", "verify")
    assert (live.code, remote.code) == (0, 0)
    assert "every link and signature is valid" in live.out


@pytest.mark.rule("CHN-003", "CHN-004")
async def test_a_rollback_says_what_it_rolled_back_and_the_chain_goes_on_with_it(node: CliNode, tmp_path: Path) -> None:
    await node.wait_height(2)
    height = await node.head()
    task = await enqueued(node)
    reservation = (await node.run("account", "reserve", "alice", 60)).out.splitlines()[-1].split()[1]
    assert (await node.run("account", "charge", reservation, "bob", 50)).code == 0
    assert (await node.run("job", "cancel", task)).code == 0
    await proved(node, task, tmp_path / "proof.json")
    assert (await node.run("chain", "export", tmp_path / "headers")).code == 0
    kept = await node.run("chain", "rollback", height)
    assert (kept.code, "pass --yes" in kept.err) == (1, True)
    assert (await node.run("account", "show", "bob", "--json")).json["pending"] == 50
    done = await node.run("chain", "rollback", height, "--yes")
    assert done.code == 0, done.err
    assert f"rolled back  block {height + 1}, " in done.out
    assert f"in the open block again: jobAdmitted {task}" in done.out
    assert f"in the open block again: jobCancelled {task}" in done.out
    assert f"money        rolled back: 50 for bob from reservation {reservation}: reserved again" in done.out
    assert f"money        rolled back: the refund of job {task}: applied again in the open block" in done.out
    assert done.out.splitlines()[-1] == f"head         {height}; in the open block: 2 transactions"
    assert (await node.run("account", "show", "bob", "--json")).json["pending"] == 0
    listing = ("chain", "list", "--height", height + 1, "--json")
    while {row["status"] for row in (await node.run(*listing)).json["rows"]} == {"SEALED"}:
        await asyncio.sleep(0)  # lists follow the journal by a moment
    again = await proved(node, task, tmp_path / "again.json")
    assert again["proof"]["leaf"] == json.loads((tmp_path / "proof.json").read_text())["proof"]["leaf"]
    assert holdfast("chain", "verify", tmp_path / "again.json").code == 0
    assert (await node.run("chain", "export", tmp_path / "headers")).code == 0
    assert holdfast("chain", "verify", tmp_path / "headers").code == 0
    operator = (await node.run("key", "create", "--role", "operator")).out.strip()
    twice = (await node.run_over_http(operator, "chain", "rollback", height, "--yes", "--json")).json
    assert not [line for line in twice["money"] if "bob" in line], "what was rolled back before is not listed again"
    assert twice["waiting"] == 2


@pytest.mark.rule("CHN-003", "CHN-004", "CHN-006")
async def test_a_large_rollback_goes_in_steps_and_tells_the_same(node: CliNode) -> None:
    await node.wait_height(2)
    height, jobs = await node.head(), 600
    payload = {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}}
    assert (await node.run("account", "mint", "alice", 10 * jobs)).code == 0
    async with NodeSocket(node.node.data, WITHIN_S) as client:
        calls = (client.call("cap.enqueue", payload=payload, max_fee=10, nonce=n, caller="alice") for n in range(jobs))
        tasks = [receipt["task_id"] for receipt in await asyncio.gather(*calls)]
        assert (await node.run("job", "cancel", tasks[0])).code == 0
        await node.run("chain", "prove", tasks[-1], "--wait")
        done = await node.run("chain", "rollback", height, "--yes")
    assert done.code == 0, done.err
    assert f"rolled back  block {height + 1}, " in done.out
    again = [line.split()[6] for line in done.out.splitlines() if "again: jobAdmitted" in line]
    assert sorted(again) == sorted(tasks)
    assert f"money        rolled back: the refund of job {tasks[0]}: applied again in the open block" in done.out
    assert done.out.splitlines()[-1] == f"head         {height}; in the open block: {jobs + 1} transactions"
    await node.wait_height(height + 1)
    assert (await node.run("chain", "prove", tasks[-1], "--wait")).json["block"]["height"] == height + 1
    assert await node.node.stop() == 0
    replayed = await node.run_offline("chain", "replay")
    assert replayed.code == 0, replayed.err
    assert replayed.field("on") == f"it   {jobs + 1} transactions"


@pytest.mark.rule("CHN-003", "CHN-005")
async def test_a_rollback_that_may_not_be_is_refused_and_nothing_is_rolled_back(tmp_path: Path) -> None:
    final = KEEPS | {"HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": "1"}
    async with running_cli_node(tmp_path, chain=final) as node:
        await node.wait_height(4)
        below = await node.run("chain", "rollback", 1, "--yes")
        assert (below.code, "CHN-005: blocks up to" in below.err) == (1, True)
        above = await node.run("chain", "rollback", 10**6, "--yes")
        assert (above.code, "no block 1000000" in above.err) == (1, True)
        neither = await node.run("chain", "rollback", "--yes")
        assert (neither.code, "pass HEIGHT or --blocks" in neither.err) == (2, True)
        assert {row["status"] for row in (await node.run("chain", "list", "--json")).json["rows"]} == {"SEALED"}
        assert await node.node.stop() == 0
    production = tmp_path / "production"
    production.mkdir()
    async with running_cli_node(production, {"HOLDFAST_NETWORK": "production"}, chain=KEEPS) as node:
        await node.wait_height(1)
        refused = await node.run("chain", "rollback", 1, "--yes")
        assert (refused.code, "only a development network" in refused.err) == (1, True)


@pytest.mark.rule("CHN-006")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def test_a_replay_gives_the_chain_beside_a_node_and_without_one(place: Place, store: str) -> None:
    settings = on_postgres(place.address) if store == "postgres" else {}
    async with running_cli_node(place.folder, settings, chain=KEEPS) as node:
        await node.run("account", "mint", "alice", 1_000)
        await enqueued(node)
        await node.wait_height(3)
        assert (await node.run("chain", "rollback", "--blocks", 1, "--yes")).code == 0
        await node.wait_height(3)
        beside = await node.run_offline("chain", "replay")
        assert beside.code == 0, beside.err
        assert "the journal gives the chain" in beside.out
        assert await node.node.stop() == 0
        without = await node.run_offline("chain", "replay")
        assert without.code == 0, without.err
        head = int(without.field("head").split(",")[0])
        computed, orphaned = figures(without.out)
        assert (computed - orphaned, orphaned >= 1) == (head, True)
        assert without.field("on") == "it   1 transaction"
        other = await node.run_offline("chain", "replay", "--config", other_chain(place.folder))
        assert (other.code, "chain_id must be that of" in other.err) == (74, True)


def figures(said: str) -> tuple[int, int]:
    """Blocks computed again, and how many of them are orphaned."""
    words = said.splitlines()[0].split()
    return int(words[words.index("chain:") + 1]), int(words[-2])


def other_chain(folder: Path) -> Path:
    file = folder / "other.toml"
    file.write_text("chain_id = 7\n")
    return file
