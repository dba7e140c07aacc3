"""The owner's process or its disk hangs: the standby replaces it; one that wakes up has written nothing (ENG-008)."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.postgres.server import Server, running
from tests.storage.stores import Place
from tests.stories.faults.test_node_killed import PATIENCE_S
from tests.stories.forked_command import run_program
from tests.stories.gated_sync import GatedSync, needs_gcc
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast.client.node_socket import NodeSocket

QUICK = {
    "HOLDFAST_OWNER__HEARTBEAT_MS": "100",
    "HOLDFAST_OWNER__PAUSE_MS": "1000",
    "HOLDFAST_OWNER__TAKEOVER_MS": "2000",
}
pytestmark = pytest.mark.rule("ENG-008")


class HangingPair:
    """Two nodes on one journal that replace each other soon."""

    def __init__(self, place: Place, store: str) -> None:
        self._place, self._store = place, store
        self._settings = QUICK | (on_postgres(place.address) if store == "postgres" else {})
        self.made: list[NodeProcess] = []

    async def up(
        self, name: str, *, standby: bool = True, environ: Mapping[str, str] | None = None
    ) -> tuple[NodeProcess, Path]:
        folder = self._place.folder / (name if self._store == "postgres" else "data")
        settings = self._settings | {"HOLDFAST_STANDBY": "true" if standby else "false"} | dict(environ or {})
        node = NodeProcess(folder, name, settings)
        self.made.append(node)
        return node, await node.up(folder / f"{name}.sock" if standby else None)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(place: Place, store: str) -> Iterator[HangingPair]:
    pair = HangingPair(place, store)
    yield pair
    for node in pair.made:
        node.end()


async def owner_of_term(client: NodeSocket, term: int) -> int:
    """Wait until this node owns the journal; the last event then."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = await client.status()
            if (status["role"], status["term"]) == ("owner", term):
                return int(status["event"])
            await asyncio.sleep(0.02)


async def roles_of_term(term: int, *clients: NodeSocket) -> None:
    """Wait until one of them owns the journal and the others follow it: one that wakes up may be the faster one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            seen = [await client.status() for client in clients]
            roles = sorted(status["role"] for status in seen)
            if roles == ["follower"] * (len(clients) - 1) + ["owner"] and {status["term"] for status in seen} == {term}:
                return
            await asyncio.sleep(0.02)


@pytest.mark.rule("ENG-006", "LEA-008")
async def test_a_stopped_owner_is_replaced_and_a_woken_one_has_written_nothing(pair: HangingPair, store: str) -> None:
    one, first = await pair.up("one")
    two, second = await pair.up("two")
    async with NodeSocket(second, PATIENCE_S) as standby:
        await standby.mint(bytes(32), "alice", 100)
        one.signal(signal.SIGSTOP)
        await owner_of_term(standby, 2)
        event = (await standby.reserve(b"1" * 32, "alice", 60))["event"]
        if store == "sqlite":
            assert await one.ended() == -signal.SIGKILL, "a stopped process keeps its locks: it was ended"
        else:
            one.signal(signal.SIGCONT)
            async with NodeSocket(first, PATIENCE_S) as woken:
                async with asyncio.timeout(PATIENCE_S):
                    while (await woken.status())["role"] != "follower" or (await woken.status())["event"] < event:
                        await asyncio.sleep(0.02)
                assert (await woken.reserve(b"1" * 32, "alice", 60)) == {"event": event, "is_repeat": True}
        status = await standby.status()
        assert (status["role"], status["term"], status["event"]) == ("owner", 2, event)
    if store == "postgres":  # who was replaced once can own again, with all that belongs to an owner
        await two.kill()
        async with NodeSocket(first, PATIENCE_S) as again:
            await owner_of_term(again, 3)
        async with NodeSocket(one.data, PATIENCE_S) as again:
            assert (await again.reserve(b"2" * 32, "alice", 40))["is_repeat"] is False
        assert await one.stop() == 0


@pytest.fixture
def gate() -> Iterator[GatedSync]:
    with tempfile.TemporaryDirectory(prefix="holdfast-gate-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        gate = GatedSync(Path(folder))
        yield gate
        gate.open()


@needs_gcc
@pytest.mark.rule("ENG-002")
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_an_owner_whose_sync_hangs_is_replaced_and_its_last_command_counts_once(
    pair: HangingPair, gate: GatedSync
) -> None:
    one, _ = await pair.up("one", environ=gate.environ)
    _, second = await pair.up("two")
    async with NodeSocket(second, PATIENCE_S) as standby, NodeSocket(second, PATIENCE_S) as caller:
        await standby.mint(bytes(32), "alice", 100)
        gate.shut()
        hanging = asyncio.create_task(caller.mint(b"1" * 32, "alice", 10))
        await owner_of_term(standby, 2)
        assert await one.ended() == -signal.SIGKILL, "its loop turned and its append hung: that is no heartbeat"
        await assert_counted_once(standby, await hanging)


@needs_gcc
@pytest.mark.rule("ENG-002")
async def test_while_the_sync_of_postgresql_hangs_its_owner_stays_and_ends_its_term_after_it(
    postgres_programs: Path, gate: GatedSync, tmp_path: Path
) -> None:
    with running(postgres_programs) as server:
        server.environ = gate.environ
        server.restart()
        pair = HangingPair(Place(tmp_path, lambda: server), "postgres")
        try:
            one, first = await pair.up("one")
            two, second = await pair.up("two")
            async with (
                NodeSocket(first, PATIENCE_S) as owner,
                NodeSocket(second, PATIENCE_S) as standby,
                NodeSocket(second, PATIENCE_S) as caller,
            ):
                await standby.mint(bytes(32), "alice", 100)
                gate.shut()
                hanging = asyncio.create_task(caller.mint(b"1" * 32, "alice", 10))
                await waits_for_the_end_of_a_backend(server)
                assert (await standby.status())["role"] == "follower", "its backend has not ended"
                gate.open()
                await roles_of_term(2, owner, standby)
                await assert_counted_once(standby, await hanging)
            assert "Traceback" not in one.log() + two.log()
        finally:
            for node in pair.made:
                node.end()


async def waits_for_the_end_of_a_backend(server: Server) -> None:
    """The standby has told the owner's backend to end: opened before that, the gate would let the owner go on."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'BackendTermination'"
    async with asyncio.timeout(PATIENCE_S):
        while (await asyncio.to_thread(server.psql, waiting)).strip() != "1":
            await asyncio.sleep(0.02)


async def assert_counted_once(client: NodeSocket, answered: dict[str, Any]) -> None:
    """The command that hung was decided once, under one number, whoever was asked."""
    again = await client.mint(b"1" * 32, "alice", 10)
    assert again == {"event": answered["event"], "is_repeat": True}
    assert (await client.account("alice"))["available"] == 110


async def test_an_owner_that_only_slept_goes_on_in_a_new_term(pair: HangingPair) -> None:
    node, folder = await pair.up("one", standby=False)
    async with NodeSocket(folder, PATIENCE_S) as client:
        await client.mint(bytes(32), "alice", 100)
        node.signal(signal.SIGSTOP)
        await asyncio.sleep(1.2)  # longer than pause_ms: this is about real time that passes
        node.signal(signal.SIGCONT)
        await owner_of_term(client, 2)
        assert (await client.reserve(b"1" * 32, "alice", 60))["is_repeat"] is False
    assert await node.stop() == 0


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_a_replaced_owner_that_is_no_standby_ends(pair: HangingPair) -> None:
    one, _ = await pair.up("one", standby=False)
    _, second = await pair.up("two")
    async with NodeSocket(second, PATIENCE_S) as standby:
        os.kill(one.pid, signal.SIGSTOP)
        event = await owner_of_term(standby, 2)
        one.signal(signal.SIGCONT)
        assert await one.ended() == 75
        assert "another node owns the journal now" in one.log()
        assert (await standby.status())["event"] == event


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_doctor_tells_a_live_owner_from_a_hung_and_a_killed_one(pair: HangingPair) -> None:
    node, folder = await pair.up("one", standby=False)
    (folder / "node.sock").rename(folder / "elsewhere.sock")  # as while it recovers: it does not listen yet
    assert "owns the journal and is alive" in doctor(folder)
    (folder / "elsewhere.sock").rename(folder / "node.sock")
    node.signal(signal.SIGSTOP)
    assert f"process {node.pid} owns the journal and shows no heartbeat" in doctor(folder)
    node.signal(signal.SIGCONT)
    await node.kill()
    assert "no process owns the journal" in doctor(folder)
    assert "Traceback" not in node.log()


def doctor(folder: Path) -> str:
    run = run_program("doctor", "--data", folder, environ=os.environ | QUICK)
    assert run.stderr == ""
    return run.stdout
