"""Providers on the command line: registered by a key file, staked, moved by an operator, and asked why they idle."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.ports import free_ports
from tests.stories.agent import AgentProcess
from tests.stories.telling import OFTEN, Said, Told, holdfast, told

WITHIN_S = 30.0
LONG = {"kind": "AI", "spec": {"model": "sleep", "prompt": "z", "params": {"ms": 60_000}}}


class House:
    """A node with an HTTP and a gRPC door, and a provider that only has a key."""

    def __init__(self, node: Told, port: int, folder: Path) -> None:
        self.node, self.port, self.folder = node, port, folder

    async def register(self, key: str = "oak.pem", **told: str) -> Said:
        words = {"node": f"127.0.0.1:{self.port}", "name": "oak", "account": "oak", "model": "echo"} | told
        flags = [word for name, value in words.items() for word in (f"--{name}", value)]
        return await asyncio.to_thread(holdfast, "provider", "register", self.folder / key, *flags)

    async def say(self, *words: object) -> Said:
        return await self.node.say("provider", *words)

    async def status(self, provider: str) -> str:
        return (await self.say("show", provider)).field("status")

    async def until(self, provider: str, status: str) -> None:
        end = time.monotonic() + WITHIN_S
        while await self.status(provider) != status:
            assert time.monotonic() < end, f"never {status}"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    port = free_ports(1)[0]
    environ = {
        "HOLDFAST_GRPC__ENABLED": "true",
        "HOLDFAST_GRPC__PORT": str(port),
        "HOLDFAST_POLICY__PROVIDER__UNSTAKE_LOCK_BLOCKS": "2",
        "HOLDFAST_POLICY__PROVIDER__UNSTAKE_COOLDOWN_MS": "1",
    }
    async with told(tmp_path, environ, OFTEN) as node:
        yield House(node, port, tmp_path)


@pytest.mark.rule("PRV-001")
async def test_a_provider_is_registered_with_a_key_file_and_what_is_wrong_is_said(house: House) -> None:
    made = await house.register()
    assert (made.field("status"), made.field("stake")) == ("REGISTERED", "0 of 10000")
    key = house.folder / "oak.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    again = await house.register()
    assert again.field("provider") == made.field("provider"), "the provider is the key"
    shown = await house.say("show", made.field("provider"))
    assert (shown.field("attestor"), shown.field("name")) == ("self-signed", "oak")
    for change, says, code in (
        ({"account": "OAK!"}, "account", 2),
        ({"model": "no-such-model"}, "no-such-model", 2),
        ({"node": "elsewhere.example:1"}, "no TLS", 2),
        ({"node": f"127.0.0.1:{free_ports(2)[1]}"}, "is a node up there?", 75),
    ):
        refused = await house.register(**change)
        assert (refused.code, refused.out) == (code, ""), change
        assert says in refused.err


@pytest.mark.rule("PRV-001", "MAT-002")
async def test_an_operator_moves_a_provider_and_every_step_is_told_and_kept(house: House) -> None:
    id_ = (await house.register()).field("provider")
    staked = await house.say("stake", id_, 10_000, "--mint")
    assert "10000 at stake, of 10000" in staked.out
    jailed = await house.say("jail", id_, "--blocks", 1_000_000, "--reason", "it cheats")
    assert "oak is JAILED until block" in jailed.out
    shown = await house.say("show", id_)
    assert (shown.field("reason"), shown.field("moved_by")) == ("it cheats", "local")
    refused = await house.say("suspend", id_)
    assert (refused.code, "JAILED allows" in refused.err) == (1, True)
    assert "oak is REGISTERED" in (await house.say("unjail", id_)).out
    assert "draining" in (await house.say("drain", id_)).out
    assert "it was so already" in (await house.say("drain", id_)).out
    assert "draining" not in (await house.say("undrain", id_)).out
    assert "done" in (await house.say("deny", id_)).out
    listed = await house.say("list", "--status", "REGISTERED")
    assert id_ in listed.out
    assert id_ in (await house.say("lists")).out
    assert (await house.say("unlist", id_)).code == 0
    assert (await house.say("allow")).code == 2
    assert "oak is RETIRED" in (await house.say("retire", id_)).out
    gone = await house.register()
    assert (gone.code, "RETIRED is final" in gone.err) == (1, True)
    events = (await house.node.say("events", "--no-follow", "--type", "ProviderMoved")).out.splitlines()
    assert [json.loads(line)["event"]["after"] for line in events] == ["JAILED", "REGISTERED", "RETIRED"]


@pytest.mark.rule("PRV-001", "ESC-001")
async def test_stake_comes_back_by_itself_when_its_lock_is_over(house: House) -> None:
    id_ = (await house.register()).field("provider")
    await house.say("stake", id_, 500, "--mint")
    told = await house.say("unstake", id_, 200)
    assert ("200 comes back from block" in told.out, "300 at stake" in told.out) == (True, True)
    end = time.monotonic() + WITHIN_S
    while (account := (await house.node.say("account", "show", "oak")).json)["available"] != 200:
        assert time.monotonic() < end, account
    assert (account["held"], (await house.say("show", id_)).field("unstaking")) == (300, "0")
    much = await house.say("unstake", id_, 301)
    assert (much.code, "300 is at stake, 301 asked for" in much.err) == (1, True)


@pytest.mark.rule("LEA-007", "MAT-006")
async def test_a_jailed_agent_loses_its_work_at_once_and_it_can_be_asked_why(house: House) -> None:
    agent = AgentProcess(house.folder / "ash", "ash", house.port)
    try:
        agent.up()
        end = time.monotonic() + WITHIN_S
        while not (found := (await house.say("list", "--json")).json["providers"]):
            assert time.monotonic() < end, agent.log()
        id_ = found[0]["provider"]["id"]
        assert (await house.say("stake", id_, 10_000, "--mint")).code == 0
        await house.until(id_, "ACTIVE")
        await house.node.say("account", "mint", "alice", 1_000)
        words = ("job", "enqueue", "--file", "-", "--max-fee", 100, "--caller", "alice")
        task = (await house.node.say(*words, stdin=json.dumps(LONG))).field("task_id")
        end = time.monotonic() + WITHIN_S
        while (await house.node.say("job", "show", task)).field("state") != "ASSIGNED":
            assert time.monotonic() < end, agent.log()
        assert "ash is JAILED" in (await house.say("jail", id_, "--blocks", 1_000_000)).out
        shown = await house.node.say("job", "show", task)
        assert (shown.field("state"), "PROVIDER_JAILED" in shown.out) == ("QUEUED", True)
        assert (await house.say("why-not", id_, task)).out == "status JAILED\n"
        agent.kill()
        assert (await house.say("unjail", id_)).code == 0
        assert (await house.say("why-not", id_, task)).out == "status REGISTERED\n", "until its next heartbeat"
    finally:
        agent.end()
