"""A result's bytes are deleted on a real node that is killed meanwhile: reads report it, and proofs still hold."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.loopback_ports import free_ports
from tests.storage.stores import Place
from tests.stories.agent_process import AgentProcess
from tests.stories.forked_command import run_program
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast.adapters.sqlite.small_blobs import FILE_NAME as SMALL_FILE
from holdfast.adapters.warm_store import path_of
from holdfast.client import AsyncClient, NodeRefused
from holdfast.client.node_socket import NodeSocket
from holdfast.core.result import result_digest

PATIENCE_S = 60.0
LARGE = "a long answer " * 100
PROMPTS = ["short", "short", LARGE, LARGE, *(f"answer {n} " * 40 for n in range(12))]
SOON = {
    "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "50",
    "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "50",
    "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": "2",
    "HOLDFAST_POLICY__RESULT__MAX_INLINE_BYTES": "600",
    "HOLDFAST_POLICY__RESULT__RETAIN_HOT_BLOCKS": "2",
    "HOLDFAST_POLICY__RESULT__RETAIN_WARM_DAYS": "1",
    "HOLDFAST_POLICY__RESULT__RETAIN_COLD_DAYS": "1",
    "HOLDFAST_POLICY__RESULT__RESULT_TTL_BLOCKS": "400",
    "HOLDFAST_POLICY__RESULT__MAY_LOSE_UNARCHIVED": "true",
    "HOLDFAST_POLICY__RESULT__GC_INTERVAL_MS": "86400000",
    "HOLDFAST_POLICY__RESULT__GC_ROWS_MAX": "1",
    "HOLDFAST_GRPC__ENABLED": "true",
}
"""One result a run, so that a kill has many places to fall between; and only who asks collects."""
NO_DAYS = ("retain_warm_days", "retain_cold_days")


class RetentionRun:
    """A node and an agent, and what came out of a few jobs."""

    def __init__(self, place: Place, store: str) -> None:
        (port,) = free_ports(1)
        settings = SOON | {"HOLDFAST_GRPC__PORT": str(port)}
        settings |= on_postgres(place.address) if store == "postgres" else {}
        self.settings, self.folder = settings, place.folder
        self.node = NodeProcess(place.folder / "data", "node", settings)
        self.agent = AgentProcess(place.folder / "oak", "oak", port)
        self.tasks: list[str] = []

    async def work(self) -> None:
        """All jobs done, all results readable."""
        await self.node.up()
        self.agent.up()
        async with NodeSocket(self.node.data, PATIENCE_S) as client:
            await client.mint(bytes(32), "alice", 10**6)
            async with asyncio.timeout(PATIENCE_S):
                while not (found := (await client.call("aicf.listProviders"))["providers"]):
                    await asyncio.sleep(0.05)
            await client.mint(b"\1" * 32, "oak", 10_000)
            id_ = found[0]["provider"]["id"]
            await client.call("provider.stake", provider_id=id_, amount=10_000, request="02" * 32)
            payloads = [{"kind": "AI", "spec": {"model": "echo", "prompt": prompt}} for prompt in PROMPTS]
            async with AsyncClient(self.node.data, timeout_s=PATIENCE_S) as requester:
                self.tasks = [each.task_id for each in await requester.enqueue_many(payloads, 100, caller="alice")]
                for task in self.tasks:
                    await requester.wait(task)
            await self.blocks(client, 4)

    async def blocks(self, client: NodeSocket, count: int) -> None:
        """Wait until this many more blocks are sealed."""
        await self.reach(client, (await client.call("chain.getHead"))["block"]["height"] + count)

    async def reach(self, client: NodeSocket, height: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await client.call("chain.getHead"))["block"]["height"] < height:
                await asyncio.sleep(0.05)

    async def expire(self) -> None:
        """Wait until the chain has reached `expires_at` of all results (RES-003)."""
        async with NodeSocket(self.node.data, PATIENCE_S) as client:
            found = [(await client.call("cap.getResult", task_id=task))["expires_at"] for task in self.tasks]
            await self.reach(client, max(found))

    async def end_retention(self) -> None:
        """The same node when its bytes are old enough: another policy, adopted while it runs."""
        async with NodeSocket(self.node.data, PATIENCE_S) as client:
            policy = (await client.call("policy.getPolicy"))["policy"]
            policy["chain"]["finality_depth"] = 0
            policy["result"] |= dict.fromkeys(NO_DAYS, 0)
            await client.call("policy.apply", policy=policy)

    async def run_cli(self, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """What the command line says."""
        place = ["--data", str(self.node.data)] if words[0] != "verify" else []
        done = await asyncio.to_thread(run_program, *words, *place, stdin=stdin.decode())
        return done.returncode, done.stdout, done.stderr

    def make_orphans(self, count: int) -> None:
        """Files of outputs that were sent and never accepted, as old as those of results."""
        warm = self.node.data / "warm"
        for raw in (b"orphan %d" % number for number in range(count)):
            place = path_of(warm, result_digest(raw))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(raw)
        for path in self._warm_files():
            os.utime(path, (1, 1))
        with closing(sqlite3.connect(warm / SMALL_FILE)) as small, small:
            small.execute("UPDATE small SET used_ms = 1")

    def warm_count(self) -> int:
        """How many outputs the warm tier holds, in files and as rows."""
        with closing(sqlite3.connect(self.node.data / "warm" / SMALL_FILE)) as small:
            (rows,) = small.execute("SELECT count(*) FROM small").fetchone()
        return len(self._warm_files()) + int(rows)

    def _warm_files(self) -> list[Path]:
        paths = (self.node.data / "warm").rglob("*")
        return [path for path in paths if path.is_file() and not path.name.startswith(SMALL_FILE)]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def network(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[RetentionRun]:
    made = RetentionRun(place, request.param)
    yield made
    made.agent.end()
    made.node.end()


def forged(proof: str) -> bytes:
    told: dict[str, Any] = json.loads(proof)
    share = bytearray.fromhex(told["da"]["shares"][0])
    share[7] ^= 1
    told["da"]["shares"][0] = share.hex()
    return json.dumps(told).encode()


@pytest.mark.timeout(240)
@pytest.mark.rule("RET-002", "RET-003", "RET-004", "RES-007", "RES-008", "DA-001", "TIER-001")
async def test_bytes_are_deleted_through_kills_and_what_is_gone_is_still_proved(network: RetentionRun) -> None:
    await network.work()
    large = network.tasks[2]

    # A light client looks at a share, without the rest.
    code, proof, _ = await network.run_cli("result", "prove-shares", large, "--share", "1")
    assert code == 0
    code, said, _ = await network.run_cli("verify", "-", stdin=proof.encode())
    assert (code, "1 to 1 of 3 are part of it" in said) == (0, True)
    code, _, err = await network.run_cli("verify", "-", stdin=forged(proof))
    assert (code, err.startswith("false: the shares are not part of this result")) == (1, True)

    code, said, err = await network.run_cli("result", "sample", large, "--samples", "9", "--seed", "00ff")
    assert (code, "1000000 ppm sure" in said) == (0, True), err  # all three shares were asked for
    code, _, err = await network.run_cli("result", "sample", large, "--key", "00" * 32)
    assert (code, "which is not one of the given keys" in err) == (1, True)
    code, _, err = await network.run_cli("result", "sample", large, "--seed", "not hex")
    assert (code, "--seed" in err, "Traceback" in err) == (74, True, False)

    # Nothing is old enough on the disk; hot bytes may go. A dry run changes nothing.
    assert network.warm_count() == 14
    network.make_orphans(3)
    code, said, _ = await network.run_cli("gc", "run", "--dry-run", "--json")
    dry = {each["tier"]: each for each in json.loads(said)}
    assert (code, dry["hot"]["dropped"], dry["warm"]["looked"]) == (0, 16, 0)
    assert (dry["orphans"]["looked"], dry["orphans"]["dropped"], dry["orphans"]["freed_bytes"]) == (17, 3, 24)
    code, said, _ = await network.run_cli("gc", "status", "--json")
    assert [each["results"] for each in json.loads(said)["passes"]] == [0, 0, 0, 0, 0]
    assert network.warm_count() == 17

    # The node dies again and again while it collects.
    await network.end_retention()
    for number, tier in enumerate(("hot", "hot", "orphans", "warm", "warm", "records")):
        await collect_and_die(network, tier, runs=3, more_ms=3 * number)
        await network.node.up()
        await all_readable_or_pruned(network)
    code, said, err = await network.run_cli("gc", "run", "--json")
    assert code == 0, err
    assert sum(each["dropped"] for each in json.loads(said)) > 0
    code, said, _ = await network.run_cli("gc", "status", "--json")
    assert [each["results"] for each in json.loads(said)["passes"]] == [16, 16, 16, 0, 3]
    assert network.warm_count() == 0

    # What is gone says so, with the pointer, and is proved as before.
    code, _, err = await network.run_cli("result", "read", large)
    commitment = json.loads((await network.run_cli("result", "show", large, "--json"))[1])["da_commitment"]
    assert (code, commitment in err) == (1, True)
    code, after, _ = await network.run_cli("result", "prove", large)
    (network.folder / "proof.json").write_text(after)
    code, said, err = await network.run_cli("verify", str(network.folder / "proof.json"))
    assert (code, commitment in said) == (0, True), err
    assert json.loads(after)["leaf"] == json.loads(proof)["leaf"]
    code, _, err = await network.run_cli("result", "prove-shares", large, "--share", "1")
    assert (code, commitment in err) == (1, True)
    code, said, _ = await network.run_cli("result", "sample", large)
    assert (code, "not available" in said, said.count("it did not come")) == (1, True, 3)

    # Everything that is stored agrees, without what was deleted.
    await network.node.stop()
    if "HOLDFAST_POSTGRES__DSN" not in network.settings:
        code, said, err = await network.run_cli("db", "check")
        assert code == 0, said + err


async def collect_and_die(network: RetentionRun, tier: str, runs: int, more_ms: int) -> None:
    """A few runs are answered, and then the node is killed in the midst of others."""
    if tier == "records":
        await network.expire()
    async with NodeSocket(network.node.data, 0.0) as client:
        for _ in range(runs):
            await client.call("gc.run", tier=tier)
        others = asyncio.gather(*(client.call("gc.run", tier=tier) for _ in range(3)), return_exceptions=True)
        await asyncio.sleep(more_ms / 1000)
        await network.node.kill()
        await others


async def all_readable_or_pruned(network: RetentionRun) -> None:
    async with AsyncClient(network.node.data, timeout_s=PATIENCE_S) as client:
        for task, prompt in zip(network.tasks, PROMPTS, strict=True):
            try:
                found: bytes | str = await client.result(task)
            except NodeRefused as no:
                found = no.name
            assert found in (prompt.encode(), "ResultPruned")
