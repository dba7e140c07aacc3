"""Providers on the command line: registered by a key file, staked, moved by an operator, and asked why they idle."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.loopback_ports import free_ports
from tests.stories.agent_process import AgentProcess
from tests.stories.cli_runner import FAST_CHAIN, CliNode, CliResult, holdfast, running_cli_node

WITHIN_S = 30.0
LONG = {"kind": "AI", "spec": {"model": "sleep", "prompt": "z", "params": {"ms": 60_000}}}


class NodeWithProvider:
    """A node with an HTTP and a gRPC door, and a provider that only has a key."""

    def __init__(self, node: CliNode, port: int, folder: Path) -> None:
        self.node, self.port, self.folder = node, port, folder

    async def register(self, key: str = "oak.pem", **told: str) -> CliResult:
        words = {"node": f"127.0.0.1:{self.port}", "name": "oak", "account": "oak", "model": "echo"} | told
        flags = [word for name, value in words.items() for word in (f"--{name}", value)]
        return await asyncio.to_thread(holdfast, "provider", "register", self.folder / key, *flags)

    async def run(self, *words: object) -> CliResult:
        return await self.node.run("provider", *words)

    async def status(self, provider: str) -> str:
        return (await self.run("show", provider)).field("status")

    async def wait_status(self, provider: str, status: str) -> None:
        end = time.monotonic() + WITHIN_S
        while await self.status(provider) != status:
            assert time.monotonic() < end, f"never {status}"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[NodeWithProvider]:
    port = free_ports(1)[0]
    environ = {
        "HOLDFAST_GRPC__ENABLED": "true",
        "HOLDFAST_GRPC__PORT": str(port),
        "HOLDFAST_POLICY__PROVIDER__UNSTAKE_LOCK_BLOCKS": "2",
        "HOLDFAST_POLICY__PROVIDER__UNSTAKE_COOLDOWN_MS": "1",
    }
    async with running_cli_node(tmp_path, environ, FAST_CHAIN) as node:
        yield NodeWithProvider(node, port, tmp_path)


@pytest.mark.rule("PRV-001")
async def test_a_provider_is_registered_with_a_key_file_and_what_is_wrong_is_said(house: NodeWithProvider) -> None:
    made = await house.register()
    assert (made.field("status"), made.field("stake")) == ("REGISTERED", "0 of 10000")
    key = house.folder / "oak.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    again = await house.register()
    assert again.field("provider") == made.field("provider"), "the provider is the key"
    shown = await house.run("show", made.field("provider"))
    assert (shown.field("attestor"), shown.field("name")) == ("self-signed", "oak")
    for change, says, code in (
        ({"account": "OAK!"}, "account", 2),
        ({"model": "no-such-model"}, "no-such-model", 2),
        ({"node": "elsewhere.example:1"}, "no TLS", 2),
        ({"node": f"127.0.0.1:{free_ports(2)[1]}"}, "no node listens there", 75),
    ):
        refused = await house.register(**change)
        assert (refused.code, refused.out) == (code, ""), change
        assert says in refused.err


@pytest.mark.rule("PRV-001", "MAT-002")
async def test_an_operator_changes_a_providers_status_and_every_step_is_reported_and_recorded(
    house: NodeWithProvider,
) -> None:
    id_ = (await house.register()).field("provider")
    staked = await house.run("stake", id_, 10_000, "--mint")
    assert "10000 at stake, of 10000" in staked.out
    jailed = await house.run("jail", id_, "--blocks", 1_000_000, "--reason", "it cheats")
    assert "oak is JAILED until block" in jailed.out
    shown = await house.run("show", id_)
    assert (shown.field("reason"), shown.field("status_changed_by")) == ("it cheats", "local")
    refused = await house.run("suspend", id_)
    assert (refused.code, "JAILED allows" in refused.err) == (1, True)
    assert "oak is REGISTERED" in (await house.run("unjail", id_)).out
    assert "draining" in (await house.run("drain", id_)).out
    assert "unchanged" in (await house.run("drain", id_)).out
    assert "draining" not in (await house.run("undrain", id_)).out
    assert "done" in (await house.run("deny", id_)).out
    listed = await house.run("list", "--status", "REGISTERED")
    assert id_[:12] in listed.out
    assert id_ not in listed.out
    assert id_ in (await house.run("list", "--status", "registered", "--wide")).out
    assert id_ in (await house.run("rules")).out
    assert (await house.run("unset-rule", id_)).code == 0
    assert (await house.run("allow")).code == 2
    assert "oak is RETIRED" in (await house.run("retire", id_, "--yes")).out
    gone = await house.register()
    assert (gone.code, "RETIRED is final" in gone.err) == (1, True)
    events = (await house.node.run("events", "--no-follow", "--type", "providerStatusChanged")).out.splitlines()
    assert [json.loads(line)["event"]["after"] for line in events] == ["JAILED", "REGISTERED", "RETIRED"]


@pytest.mark.rule("PRV-001", "ESC-001")
async def test_stake_comes_back_by_itself_when_its_lock_is_over(house: NodeWithProvider) -> None:
    id_ = (await house.register()).field("provider")
    await house.run("stake", id_, 500, "--mint")
    told = await house.run("unstake", id_, 200)
    assert ("200 is locked until block" in told.out, "300 at stake" in told.out) == (True, True)
    end = time.monotonic() + WITHIN_S
    while (account := (await house.node.run("account", "show", "oak", "--json")).json)["available"] != 200:
        assert time.monotonic() < end, account
    assert (account["held"], (await house.run("show", id_)).field("unstaking")) == (300, "0")
    much = await house.run("unstake", id_, 301)
    assert (much.code, "300 is at stake, 301 requested" in much.err) == (1, True)


@pytest.mark.rule("LEA-007", "MAT-006")
async def test_a_jailed_agent_loses_its_work_at_once_and_it_can_be_asked_why(house: NodeWithProvider) -> None:
    agent = AgentProcess(house.folder / "ash", "ash", house.port)
    try:
        agent.up()
        end = time.monotonic() + WITHIN_S
        while not (found := (await house.run("list", "--json")).json["providers"]):
            assert time.monotonic() < end, agent.log()
        id_ = found[0]["provider"]["id"]
        assert (await house.run("stake", id_, 10_000, "--mint")).code == 0
        await house.wait_status(id_, "ACTIVE")
        await house.node.run("account", "mint", "alice", 1_000)
        words = ("job", "enqueue", "--file", "-", "--max-fee", 100, "--caller", "alice")
        task = (await house.node.run(*words, stdin=json.dumps(LONG))).field("task_id")
        end = time.monotonic() + WITHIN_S
        while (await house.node.run("job", "show", task)).field("state") != "ASSIGNED":
            assert time.monotonic() < end, agent.log()
        assert "ash is JAILED" in (await house.run("jail", id_, "--blocks", 1_000_000)).out
        shown = await house.node.run("job", "show", task)
        assert (shown.field("state"), "PROVIDER_JAILED" in shown.out) == ("QUEUED", True)
        assert (await house.run("explain", id_, task)).out == "status JAILED\n"
        agent.kill()
        assert (await house.run("unjail", id_)).code == 0
        assert (await house.run("explain", id_, task)).out == "status REGISTERED\n", "until its next heartbeat"
    finally:
        agent.end()
