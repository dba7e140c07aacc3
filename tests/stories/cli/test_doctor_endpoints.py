"""`holdfast doctor` on keys, ports, certificates and blocks: what is good, what is not, and what to do about it."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from tests.loopback_ports import free_port
from tests.stories.cli_runner import holdfast, running_cli_node
from tests.stories.node_process import NodeProcess

from holdfast.adapters.keys.authority import make_tls
from holdfast.cli.doctor import BLOCK_LATE_MS, check_chain, check_clock
from holdfast.core.policy import DAY_MS, ChainPolicy

pytestmark = pytest.mark.rule("SEC-001")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder made by `holdfast init`, with ports that are free."""
    monkeypatch.chdir(tmp_path)
    assert holdfast("init", "--http", free_port(), "--grpc", free_port()).code == 0
    return tmp_path


def line(said: str, what: str) -> str:
    return next(each for each in said.splitlines() if each[2:].startswith(f"{what} "))


def test_what_init_made_is_in_order(home: Path) -> None:
    said = holdfast("doctor")
    assert (said.code, said.err) == (0, "")
    assert "all is well" in said.out
    assert line(said.out, "http").endswith("is free")
    assert line(said.out, "grpc").endswith("is free")
    assert "public " in line(said.out, "key")


def test_a_key_that_others_may_read_is_named_with_its_remedy(home: Path) -> None:
    key = home / "holdfast-data/keys/node.pem"
    key.chmod(0o640)
    said = holdfast("doctor")
    assert said.code == 1
    assert line(said.out, "key").startswith("▲")
    assert "chmod 600" in said.out
    key.chmod(0o600)
    (home / "holdfast-data/keys/other.key").write_bytes(b"x")
    (home / "holdfast-data/keys/other.key").chmod(0o644)
    assert holdfast("doctor").code == 1


def test_a_port_that_another_program_has_is_named(home: Path) -> None:
    port = int(
        next(each for each in (home / "holdfast.toml").read_text().splitlines() if each.startswith("port")).split()[2]
    )
    with socket.create_server(("127.0.0.1", port)):
        said = holdfast("doctor")
    assert said.code == 1
    assert line(said.out, "http") == f"▲ http         127.0.0.1:{port} is taken by another program"
    assert "set http.port" in said.out


async def test_the_ports_of_the_running_node_are_its_own_and_another_programs_are_not(home: Path) -> None:
    node = NodeProcess(home / "holdfast-data")
    try:
        await node.up()
        said = holdfast("doctor")
        assert said.code == 0, said.out
        assert line(said.out, "http").endswith("is open, by this node")
        assert line(said.out, "grpc").endswith("is open, by this node")
        other = free_port()
        assert "does not listen there" in holdfast("doctor", environ={"HOLDFAST_HTTP__PORT": str(other)}).out
        with socket.create_server(("127.0.0.1", other)):
            assert "taken by another" in holdfast("doctor", environ={"HOLDFAST_HTTP__PORT": str(other)}).out
        assert await node.stop() == 0
    finally:
        node.end()


@pytest.mark.parametrize(
    ("ago_days", "days", "is_good", "says"),
    [(0, 60, True, "valid for 59 days"), (31, 60, False, "expires in 28 days"), (61, 60, False, "has expired")],
)
def test_a_certificate_is_good_until_it_must_be_renewed(
    home: Path, ago_days: int, days: int, is_good: bool, says: str
) -> None:
    made_ms = time.time_ns() // 1_000_000 - ago_days * DAY_MS
    pair = make_tls(home / "tls", made_ms, days=days)
    assert not isinstance(pair, str)
    tls = {
        "HOLDFAST_HTTP__CERTIFICATE": str(home / "tls/server.pem"),
        "HOLDFAST_HTTP__KEY": str(home / "tls/server.key"),
    }
    said = holdfast("doctor", environ=tls)
    assert (said.code == 0) is is_good
    assert says in line(said.out, "http TLS")
    swapped = holdfast("doctor", environ=tls | {"HOLDFAST_HTTP__KEY": str(home / "tls/ca.key")})
    assert (swapped.code, "is not the key of" in swapped.out) == (1, True)


async def test_a_node_without_network_apis_says_so_at_its_start_and_to_the_doctor(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    try:
        await node.up()
        said = holdfast("doctor", "--data", node.data)
        assert said.code == 0, said.out
        assert line(said.out, "http") == "✔ http         disabled"
        assert await node.stop() == 0
        assert "disabled, http.enabled turns it on" in node.log()
        assert f"socket={node.data}/node.sock" in node.log()
    finally:
        node.end()


async def test_a_node_says_at_its_start_where_it_listens(tmp_path: Path) -> None:
    port = str(free_port())
    async with running_cli_node(tmp_path, {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": port}) as node:
        assert await node.node.stop() == 0
        listening = next(each for each in node.node.log().splitlines() if " listening " in each)
        assert f"http={node.url}" in listening
        assert f"grpc=127.0.0.1:{port}" in listening


POLICY = ChainPolicy(block_ms=2_000, idle_block_ms=60_000)
LATE_MS = 60_000 + BLOCK_LATE_MS


@pytest.mark.rule("CHN-002")
@pytest.mark.parametrize(
    ("age_ms", "waiting", "is_good"),
    [
        (0, 0, True),
        (LATE_MS, 0, True),
        (LATE_MS + 1, 0, False),
        (2_000 + BLOCK_LATE_MS, 1, True),
        (2_000 + BLOCK_LATE_MS + 1, 1, False),
        (-1_000, 0, True),
        (-1_001, 0, False),
    ],
)
def test_blocks_that_do_not_come_in_time_and_a_clock_behind_them_are_found(
    age_ms: int, waiting: int, is_good: bool
) -> None:
    head = {"block": {"height": 5, "time_ms": 10**12}, "open_transactions": waiting, "finalized": 3}
    assert check_chain(head, POLICY, 10**12 + age_ms).is_good is is_good


def test_before_the_first_block_there_is_nothing_to_be_late() -> None:
    head = {"block": {"height": 0, "time_ms": 0}, "open_transactions": 0, "finalized": 0}
    assert check_chain(head, POLICY, 10**12).is_good


@pytest.mark.parametrize(("behind_ms", "is_good"), [(-5, True), (1_000, True), (1_001, False)])
def test_a_clock_behind_what_is_written_down_is_found(behind_ms: int, is_good: bool) -> None:
    assert check_clock(behind_ms, "the last batch").is_good is is_good
