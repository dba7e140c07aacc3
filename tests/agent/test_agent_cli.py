"""`holdfast agent` on the command line: it prints its status, works, and ends cleanly when asked to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import msgspec
import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.in_process_agent import lease_dirs, settings_for, wait_until
from tests.api.grpc.grpc_server import tls_folder
from tests.loopback_ports import free_ports
from tests.stories.forked_command import run_program
from tests.stories.forked_process import RunningProcess, start_program
from tests.stories.node_process import HOLDFAST, NodeProcess

from holdfast.adapters.keys.signing import SigningKey
from holdfast.agent.settings import check_settings
from holdfast.client import AsyncClient
from holdfast.client.node_socket import NodeSocket
from holdfast.core.provider.model import provider_id
from holdfast.wire.signed_messages import invitation_token

Start = Callable[..., RunningProcess]


def flags(port: int, data: Path, **other: str) -> list[str]:
    told = {"node": f"127.0.0.1:{port}", "data": str(data), "name": "oak", "account": "oak", "model": "echo"} | other
    return [word for name, value in told.items() for word in (f"--{name.replace('_', '-')}", value)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[RunningProcess] = []

    def start(port: int, **other: str) -> RunningProcess:
        words = ["agent", *flags(port, tmp_path / "agent", **other)]
        (tmp_path / "out").write_bytes(b"")
        begun.append(start_program(words, tmp_path / "log", out=tmp_path / "out"))
        return begun[-1]

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
            process.wait()


async def wait_ended(process: RunningProcess) -> int:
    return await asyncio.to_thread(process.wait, 60)


async def test_an_agent_says_who_it_is_and_what_is_missing(node: FakeNode, tmp_path: Path, start: Start) -> None:
    node.status, node.stake = "REGISTERED", 4_000
    agent = start(node.port)
    out = tmp_path / "out"
    await wait_until(lambda: "to get work" in out.read_text())
    key = SigningKey.load(tmp_path / "agent" / "keys" / "agent.pem")
    id_ = provider_id(key.public).hex()
    assert out.read_text().splitlines() == [
        f"provider {id_}",
        "registered as REGISTERED, with 4000 of 10000 at stake",
        f"  to get work: holdfast provider stake {id_} 6000",
    ]
    node.status, node.stake = "ACTIVE", 10_000
    await wait_until(lambda: "active, with 10000 at stake" in out.read_text())
    agent.send_signal(signal.SIGTERM)
    assert await wait_ended(agent) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_agent_that_is_asked_to_stop_finishes_its_work(
    node: FakeNode, tmp_path: Path, start: Start, number: signal.Signals
) -> None:
    agent = start(node.port, model="sleep")
    lease = node.offer("hello", "sleep", ms=300)
    await wait_until(lambda: node.leases[lease].is_acked)
    agent.send_signal(number)
    assert await wait_ended(agent) == 0
    assert node.submissions[lease] == 1
    assert node.records()[-1]["payload_type"] == "CHANNEL_TERMINATED"


@pytest.mark.rule("SEC-002")
async def test_an_agent_registers_with_the_invitation_of_a_file_and_names_what_is_none(
    node: FakeNode, tmp_path: Path, start: Start
) -> None:
    file, secret, expires_ms = tmp_path / "invitation", bytes(range(32)), 1_900_000_000_000
    for text in ("hfi_1_zz", None):
        if text is not None:
            file.write_text(text)
        else:
            file.unlink()
        assert await wait_ended(start(node.port, invitation=str(file))) != 0
    said = (tmp_path / "log").read_text()
    assert "not an invitation" in said
    assert str(file) in said
    assert node.registrations == []
    file.write_text(f"{invitation_token(secret, expires_ms)}\n")
    agent = start(node.port, invitation=str(file))
    await wait_until(lambda: node.registrations)
    told = node.registrations[0]
    assert (told.invitation, told.invitation_expires_ms) == (secret, expires_ms)
    agent.send_signal(signal.SIGTERM)
    assert await wait_ended(agent) == 0


@pytest.mark.rule("SEC-001")
async def test_an_agent_speaks_tls_with_a_node_whose_authority_it_knows(tmp_path: Path, start: Start) -> None:
    pair, node = tls_folder(tmp_path / "tls"), FakeNode()
    shown = [(pair.key.read_bytes(), pair.certificate.read_bytes())]
    await node.start(grpc.ssl_server_credentials(shown))
    try:
        agent = start(node.port, ca=str(tmp_path / "tls" / "ca.pem"))
        lease = node.offer("hello")
        await wait_until(lambda: node.submissions[lease])
        agent.send_signal(signal.SIGTERM)
        assert await wait_ended(agent) == 0
    finally:
        await node.stop()


async def test_a_second_agent_on_the_same_folder_is_refused(node: FakeNode, tmp_path: Path, start: Start) -> None:
    start(node.port)
    await wait_until(lambda: node.connected)
    assert await wait_ended(start(node.port)) == 75
    assert "another agent works in" in (tmp_path / "log").read_text()


@pytest.mark.rule("RES-009")
async def test_a_real_node_gives_work_to_an_agent_with_a_stake(tmp_path: Path, start: Start) -> None:
    port, http_port = free_ports(2)
    servers = {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(port)}
    servers |= {"HOLDFAST_HTTP__ENABLED": "true", "HOLDFAST_HTTP__PORT": str(http_port)}
    node = NodeProcess(tmp_path / "data", "node", servers | {"HOLDFAST_POLICY__CHAIN__BLOCK_MS": "100"})
    try:
        await node.up()
        agent, out = start(port, price="3"), tmp_path / "out"
        await wait_until(lambda: "to get work: " in out.read_text())
        command = out.read_text().partition("to get work: holdfast ")[2].split()
        staked = await asyncio.to_thread(run_program, *command, "--mint", "--data", node.data)
        assert staked.returncode == 0, staked.stderr
        await wait_until(lambda: "active, with 10000 at stake" in out.read_text())
        async with NodeSocket(node.data) as client:
            await client.mint(bytes(32), "alice", 1_000)
            payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hello"}}
        async with AsyncClient(node.data) as requester:
            receipt = await requester.enqueue(payload, 100, caller="alice", idempotency_key="a key")
            assert await requester.result(await requester.wait(receipt)) == b"hello"
        await asyncio.to_thread(read_on_command_line, node.data, http_port, receipt.task_id, tmp_path / "output")
        await wait_until(lambda: not lease_dirs(tmp_path / "agent"))
        agent.send_signal(signal.SIGTERM)
        assert await wait_ended(agent) == 0
    finally:
        node.end()


def read_on_command_line(data: Path, http_port: int, task: str, file: Path) -> None:
    """RES-009: what the program wrote, on the node's machine and over HTTP with a key; a file appears complete."""

    def holdfast(*words: object, token: str = "") -> subprocess.CompletedProcess[str]:
        return run_program(*words, environ=os.environ | {"NO_COLOR": "1", "HOLDFAST_TOKEN": token})

    url = ("--url", f"http://127.0.0.1:{http_port}")
    alice, bob = (
        holdfast("key", "create", "--account", who, "--data", data).stdout.strip() for who in ("alice", "bob")
    )
    assert holdfast("result", "read", task, "--data", data).stdout == "hello"
    assert holdfast("job", "output", task, *url, token=alice).stdout == "hello"
    assert holdfast("job", "output", task, "-o", file, "--data", data).stdout == ""
    assert file.read_bytes() == b"hello"
    assert (said := holdfast("job", "output", task, "-o", file, *url, token=bob)).returncode == 77, said
    assert [path.name for path in file.parent.iterdir() if path.name.endswith(".part")] == []


# ------------------------------------------------------------------------------------------------ bad settings


def run_refused(*words: str) -> str:
    done = run_program("agent", *words, environ=os.environ | {"NO_COLOR": "1"})
    assert done.returncode == 2, done.stderr
    return done.stderr


@pytest.mark.rule("SEC-001")
def test_every_fault_of_the_settings_is_named_at_once(tmp_path: Path) -> None:
    said = run_refused(*flags(1, tmp_path / "a", node="nowhere", account="A!", model="gpt", slots="0"))
    for fault in ("node: 'nowhere' is not HOST:PORT", "account: ", "model: no executor gpt", "slots: 0 is not in 1"):
        assert f"holdfast: SEC-001: {fault}" in said
    assert not (tmp_path / "a").exists(), "nothing was begun"


@pytest.mark.rule("SEC-001")
def test_an_agent_does_not_move_into_a_nodes_folder(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "node.pem").touch()
    assert "is a node's folder" in run_refused(*flags(1, tmp_path))
    assert not (tmp_path / "spool").exists()


@pytest.mark.rule("SEC-001")
def test_a_file_that_is_no_certificate_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    done = run_program("agent", *flags(1, tmp_path / "a", ca=str(tmp_path / "ca.pem")))
    assert (done.returncode, "ca.pem is not a PEM certificate" in done.stderr) == (75, True), done.stderr
    assert not (tmp_path / "a").exists(), "nothing was begun"


async def test_an_agent_works_on_when_nobody_reads_what_it_says(node: FakeNode, tmp_path: Path) -> None:
    node.status, node.stake = "REGISTERED", 4_000
    command = [str(HOLDFAST), "agent", *flags(node.port, tmp_path / "agent")]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as agent:
        try:
            assert agent.stdout is not None
            await asyncio.to_thread(agent.stdout.readline)
            agent.stdout.close()
            await wait_until(lambda: "work_stream_open" in (tmp_path / "log").read_text())
        finally:
            agent.kill()


@pytest.mark.rule("SEC-001")
def test_work_does_not_cross_a_network_in_plain_text(tmp_path: Path) -> None:
    assert "there is no TLS" in run_refused(*flags(1, tmp_path / "a", node="node.example:8452"))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("node", "localhost:1", "localhost:0"),
        ("node", "[::1]:65535", "[::1]:65536"),
        ("name", "x" * 64, "x" * 65),
        ("name", "x", ""),
        ("slots", 1, 0),
        ("slots", 10_000, 10_001),
        ("price", 0, -1),
        ("region", "x" * 64, "x" * 65),
        ("models", ("echo",), ()),
        ("drain_ms", 0, -1),
        ("retry_base_ms", 1, 0),
    ],
)
def test_settings_are_good_up_to_their_bounds(name: str, good: object, bad: object, tmp_path: Path) -> None:
    settings = settings_for(FakeNode(), tmp_path)
    assert list(check_settings(msgspec.structs.replace(settings, **{name: good}))) == []
    assert len(list(check_settings(msgspec.structs.replace(settings, **{name: bad})))) == 1
