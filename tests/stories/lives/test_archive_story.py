"""A large output on a real node: archived with real KZG, verified, deleted there, and fetched by its locator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.loopback_ports import free_ports
from tests.stories.agent_process import AgentProcess
from tests.stories.forked_command import run_program
from tests.stories.node_process import NodeProcess

from holdfast.client import AsyncClient
from holdfast.client.node_socket import NodeSocket

PATIENCE_S = 40.0
LARGE = "a long answer " * 10_000
"""Two blobs."""
SETTINGS = {
    "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "50",
    "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "200",
    "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": "0",
    "HOLDFAST_POLICY__RESULT__MAX_INLINE_BYTES": "600",
    "HOLDFAST_POLICY__RESULT__RETAIN_HOT_BLOCKS": "0",
    "HOLDFAST_POLICY__RESULT__RETAIN_WARM_DAYS": "0",
    "HOLDFAST_POLICY__RESULT__GC_INTERVAL_MS": "86400000",
    "HOLDFAST_POLICY__ARCHIVE__BLOB_WAIT_BLOCKS": "1",
    "HOLDFAST_ARCHIVE__PROVIDER": "file",
    "HOLDFAST_ARCHIVE__KZG_PROCESSES": "1",
    "HOLDFAST_GRPC__ENABLED": "true",
    "HOLDFAST_HTTP__ENABLED": "true",
}

OWN_SETTINGS = {("blob", "fetch"), ("job", "output"), ("db", "export"), ("db", "import")}
"""Commands that read the archive, the bucket or the store themselves."""


class ArchiveRun:
    """A node with an archive in a folder or in a bucket, and an agent."""

    def __init__(self, folder: Path, bucket: Mapping[str, str] | None = None) -> None:
        port, self.http_port = free_ports(2)
        self.settings = SETTINGS | {
            "HOLDFAST_GRPC__PORT": str(port),
            "HOLDFAST_HTTP__PORT": str(self.http_port),
            "HOLDFAST_ARCHIVE__URL": str(folder / "archived"),
            **(bucket or {}),
        }
        self.has_folder = bucket is None
        self.export_url = f"{self.settings['HOLDFAST_ARCHIVE__URL']}-export"
        self.folder = folder
        self.node = NodeProcess(folder / "data", "node", self.settings)
        self.agent = AgentProcess(folder / "oak", "oak", port)

    async def finish_job(self, client: NodeSocket, prompt: str) -> str:
        await client.mint(bytes(32), "alice", 10**6)
        await self.until(client, self._has_provider)
        await client.mint(b"\1" * 32, "oak", 10_000)
        id_ = (await client.call("aicf.listProviders"))["providers"][0]["provider"]["id"]
        await client.call("provider.stake", provider_id=id_, amount=10_000, request="02" * 32)
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": prompt}}
        async with AsyncClient(self.node.data, timeout_s=PATIENCE_S) as requester:
            receipt = await requester.enqueue(payload, 100, caller="alice", idempotency_key="job")
            return (await requester.wait(receipt)).task_id

    async def _has_provider(self, client: NodeSocket) -> bool:
        return bool((await client.call("aicf.listProviders"))["providers"])

    async def until(self, client: NodeSocket, holds: Callable[[NodeSocket], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await holds(client):
                await asyncio.sleep(0.05)

    async def follow(self, key: str, token: str) -> tuple[int, str]:
        """A follower with a folder of its own, once; exit code and what it says."""
        names = ("HOLDFAST_ARCHIVE__PROVIDER", "HOLDFAST_ARCHIVE__URL", "HOLDFAST_ARCHIVE__KZG_PROCESSES")
        words = ("follow", "run", f"http://127.0.0.1:{self.http_port}", "--key", key, "--once")
        environ = {"PATH": "", "HOLDFAST_TOKEN": token, **{name: self.settings[name] for name in names}}
        done = await asyncio.to_thread(run_program, *words, "--data", self.folder / "follower", environ=environ)
        return done.returncode, done.stderr

    async def follower_status(self, height: int) -> dict[str, Any]:
        words = ("follow", "status", height, "--json", "--data", self.folder / "follower")
        done = await asyncio.to_thread(run_program, *words)
        assert done.returncode == 0
        view: dict[str, Any] = json.loads(done.stdout)
        return view

    async def run_cli(self, *words: str, stdin: bytes = b"", data: Path | None = None) -> tuple[int, str, str]:
        place = ["--data", str(data or self.node.data)] if words[0] != "verify" else []
        environ = {"PATH": "", **self.settings} if words[:2] in OWN_SETTINGS else None
        done = await asyncio.to_thread(run_program, *words, *place, environ=environ, stdin=stdin.decode())
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.full)])
async def run(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ArchiveRun]:
    bucket = None
    if request.param == "s3":
        server = request.getfixturevalue("seaweedfs")
        bucket = server.environment | {
            "HOLDFAST_ARCHIVE__PROVIDER": "s3",
            "HOLDFAST_ARCHIVE__URL": f"{server.bucket()}/folder",
            "HOLDFAST_ARCHIVE__ENDPOINT": server.endpoint,
        }
    made = ArchiveRun(tmp_path, bucket)
    yield made
    made.agent.end()
    made.node.end()


async def _status(client: NodeSocket) -> dict[str, Any]:
    status: dict[str, Any] = await client.call("archive.getStatus")
    return status


@pytest.mark.timeout(240)
@pytest.mark.rule("BLB-001", "BLB-003", "ARC-001", "ARC-004", "PRU-001", "RET-002", "SYN-001", "SYN-002", "NTC-005")
@pytest.mark.rule("RES-009", "SRV-001", "ENG-004")
async def test_an_output_is_archived_verified_pruned_and_fetched_by_its_locator(run: ArchiveRun) -> None:
    await run.node.up()
    run.agent.up()
    async with NodeSocket(run.node.data, PATIENCE_S) as client:
        task = await run.finish_job(client, LARGE)
    await run.node.kill()  # while the result is being packed, or uploaded
    await run.node.up()
    async with NodeSocket(run.node.data, PATIENCE_S) as client:
        await run.until(client, lambda client: _is(client, archived=2, pending=0))
        code, out, err = await run.run_cli("archive", "status", "--wait")
        assert (code, "2 of 2 blobs" in out) == (0, True), err
    await run.node.kill()
    await run.node.up()
    async with NodeSocket(run.node.data, PATIENCE_S) as client:
        parts = (await client.call("blob.getParts", task_id=task))["parts"]
        heights = sorted({part["blob"]["height"] for part in parts})  # a block may come between the two
        assert [part["blob"]["assurance"] for part in parts] == ["verified", "verified"]
        code, out, _ = await run.run_cli("blob", "prune", "--before", str(heights[-1] + 1))
        assert (code, "the archive key is on this machine alone" in out) == (0, True)
        assert list((run.node.data / "blobs" / "packs").iterdir()) != []
        code, _, err = await run.run_cli("archive", "key", "export", str(run.folder / "copy.key"))
        assert (code, err) == (0, "")
        await run.until(client, lambda client: _is(client, pruned=2))
        assert {(await client.call("blob.status", height=height))["status"] for height in heights} == {"pruned"}
        assert list((run.node.data / "blobs" / "packs").iterdir()) == []
        code, out, err = await run.run_cli("gc", "run", "--json")
        assert code == 0, err
        assert {report["tier"]: report["dropped"] for report in json.loads(out)}["warm"] == 1
        code, out, err = await run.run_cli("blob", "audit")
        assert (code, out) == (0, "2 blobs read back, 0 bad\n"), err
        code, out, err = await run.run_cli("job", "output", task)  # the node fetches it
        assert (code, out) == (0, LARGE), err
        for height in heights:
            await _is_gone(run, height, [part["blob"]["locator"] for part in parts if part["blob"]["height"] == height])
        code, out, err = await run.run_cli("blob", "fetch", task, "--output", str(run.folder / "fetched"))
        assert code == 0, err
        assert (run.folder / "fetched").read_text() == LARGE
        code, proof, err = await run.run_cli("result", "prove", task)
        assert code == 0, err
        key = (await client.call("chain.getHead"))["block"]["proposer"]
        code, out, err = await run.run_cli("verify", "-", "--key", key, stdin=proof.encode())
        assert (code, out.startswith("true")) == (0, True), err
        assert len(json.loads(proof)["locators"]) == 2
        if run.has_folder:
            await _follow(run, key, heights)
        else:
            await _standby_fetches(run, task, heights)
    if run.has_folder:
        await _is_found_out(run, task)
    else:
        await _export_to_bucket(run)
        await _fetch_without_the_node(run, task)


async def _is_found_out(run: ArchiveRun, task: str) -> None:
    """ARC-004: an archive with other bytes convinces nobody."""
    for item in (run.folder / "archived" / "items").iterdir():
        raw = item.read_bytes()
        assert b"a long answer" not in raw  # private bytes are encrypted
        item.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    code, out, _ = await run.run_cli("blob", "audit")
    assert (code, "2 bad" in out) == (1, True)
    code, _, err = await run.run_cli("blob", "fetch", task, "--output", str(run.folder / "again"))
    assert (code, "other bytes" in err) == (74, True)


async def _is_gone(run: ArchiveRun, height: int, locators: list[str]) -> None:
    """SRV-001: whoever asks for the blobs is told where they are."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{run.http_port}") as http:
        gone = await http.get(f"/eth/v1/beacon/blobs/{height}")
    assert (gone.status_code, gone.json()["locators"]) == (410, locators)


async def _standby_fetches(run: ArchiveRun, task: str, heights: list[int]) -> None:
    """RES-009: a standby fetches like the owner, and goes on doing so when it is the owner itself."""
    grpc_port, http_port = free_ports(2)
    ports = {"HOLDFAST_GRPC__PORT": str(grpc_port), "HOLDFAST_HTTP__PORT": str(http_port)}
    standby = NodeProcess(run.node.data, "standby", run.settings | ports | {"HOLDFAST_STANDBY": "true"})
    await standby.up(run.node.data / "standby.sock")
    token = (await run.run_cli("key", "create", "--role", "auditor"))[1].strip()
    headers = {"authorization": f"Bearer {token}"}
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{http_port}", headers=headers) as http:
            for height in heights:
                assert (await http.get(f"/eth/v1/beacon/blobs/{height}")).status_code == 410
            await _output_is(http, task, LARGE.encode())
            assert [file.name for file in (run.node.data / "fetched").iterdir()] == ["node", "standby"]
            await run.node.kill()
            async with NodeSocket(standby.data / "standby.sock", PATIENCE_S) as client:
                await run.until(client, _is_owner)
            await _output_is(http, task, LARGE.encode())
    finally:
        standby.end()
    await run.node.up()


async def _output_is(http: httpx.AsyncClient, task: str, output: bytes) -> None:
    """Its key, or its process, may be a moment behind."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await http.get(f"/v1/outputs/{task}", timeout=PATIENCE_S)).status_code != 200:
            await asyncio.sleep(0.05)
    assert answer.content == output


async def _is_owner(client: NodeSocket) -> bool:
    return bool((await client.status())["role"] == "owner")


async def _follow(run: ArchiveRun, key: str, heights: list[int]) -> None:
    """SYN-001, SYN-002: another process has the chain, checked; the bytes of pruned heights never were there."""
    code, token, err = await run.run_cli("key", "create", "--role", "auditor")
    assert code == 0, err
    code, err = await run.follow(key, token.strip())
    assert (code, "0 heights with bytes here" in err) == (0, True), err
    for height in heights:
        code, out, err = await run.run_cli("blob", "status", str(height), "--json")
        locators = [blob["locator"] for blob in json.loads(out)["blobs"]]
        view = await run.follower_status(height)
        assert [(blob["bytes"], blob["status"], blob["locator"]) for blob in view["blobs"]] == [
            ("absent", "archived", locator) for locator in locators
        ]
    code, err = await run.follow(key, "hf_none")
    assert (code, "no peer can be asked" in err) == (75, True), err
    code, err = await run.follow("ab" * 32, token.strip())
    assert (code, "did not begin with" in err) == (75, True), err
    code, out, err = await run.run_cli("validator", "list", "--json")
    assert (code, [each["key"] for each in json.loads(out)]) == (0, [key]), err
    code, out, err = await run.run_cli("validator", "add", "cd" * 32)
    assert (code, "is a validator" in out) == (0, True), err
    code, _, err = await run.run_cli("validator", "add", "cd")
    assert (code, "32 bytes" in err) == (2, True), err


async def _export_to_bucket(run: ArchiveRun) -> None:
    """ENG-004: the history of a running node goes into a bucket, again with what is new, and comes back equal."""
    for _ in range(2):
        code, out, err = await run.run_cli("db", "export", "--to", run.export_url)
        assert (code, out.startswith("exported ")) == (0, True), err
    code, said, err = await run.run_cli("db", "import", "--from", run.export_url, data=run.folder / "restored")
    assert code == 0, err
    assert said.split(" into ")[0].removeprefix("im") == out.split(" to ")[0].removeprefix("ex")


async def _fetch_without_the_node(run: ArchiveRun, task: str) -> None:
    """RES-009: a node that reads no archive answers 410 with the locators, and the command fetches by itself."""
    await run.node.kill()
    without = NodeProcess(run.node.data, "without", run.settings | {"HOLDFAST_ARCHIVE__PROVIDER": "none"})
    run.node = without
    await without.up()
    code, _, err = await run.run_cli("job", "output", task, "-o", str(run.folder / "by hand"))
    assert code == 0, err
    assert (run.folder / "by hand").read_text() == LARGE
    run.settings["HOLDFAST_ARCHIVE__PROVIDER"] = "none"  # nobody names the archive now
    code, _, err = await run.run_cli("job", "output", task, "-o", str(run.folder / "none"))
    assert (code, f"holdfast blob fetch {task}" in err) == (1, True), err
    assert not (run.folder / "none").exists()


async def _is(client: NodeSocket, **expected: int) -> bool:
    status = await _status(client)
    return all(status[name] == value for name, value in expected.items())
