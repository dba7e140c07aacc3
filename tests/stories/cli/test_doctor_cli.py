"""`holdfast doctor` names what is dangerous and changes nothing; a node has snapshots made by another process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.storage.stores import Place
from tests.stories.forked_command import run_program
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast.client.node_socket import NodeSocket
from holdfast.engine.outcome import EngineStatus


def doctor(data: Path, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    run = run_program("doctor", "--data", data, environ=os.environ | dict(environ or {}))
    assert run.stderr == ""
    return run.returncode, run.stdout


@pytest.mark.rule("SEC-001")
def test_a_folder_that_is_not_there_yet_is_fine_and_stays_away(tmp_path: Path) -> None:
    code, said = doctor(tmp_path / "data")
    assert (code, "all is well" in said) == (0, True)
    assert not (tmp_path / "data").exists()


@pytest.mark.rule("SEC-001")
def test_an_open_folder_is_named_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data").chmod(0o755)
    code, said = doctor(tmp_path / "data")
    assert code == 1
    assert "▲ folder" in said
    assert "chmod 700" in said


@pytest.mark.rule("ENG-002")
def test_dangerous_settings_of_a_server_are_named_and_the_node_refuses_them(place: Place) -> None:
    server, address = place.server(), place.address
    role = f"careless_{address.schema}"
    server.psql(f"CREATE ROLE {role} LOGIN PASSWORD 'careless'; GRANT CREATE ON DATABASE holdfast TO {role}")
    server.psql(f"ALTER ROLE {role} SET synchronous_commit = off")
    dsn = f"postgresql://{role}:careless@127.0.0.1:{server.port}/holdfast"
    environ = on_postgres(address) | {"HOLDFAST_POSTGRES__DSN": dsn}
    place.folder.joinpath("data").mkdir(mode=0o700)
    code, said = doctor(place.folder / "data", environ)
    assert code == 1
    assert "▲ synchronous_commit off" in said
    assert "careless" not in said.replace(role, "")
    refused = run_program("up", "--data", place.folder / "data", environ=os.environ | environ)
    assert refused.returncode == 75
    assert "synchronous_commit = off" in refused.stderr


@pytest.mark.rule("ENG-003")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def test_a_node_has_its_snapshots_made_by_another_process(place: Place, store: str) -> None:
    settings = on_postgres(place.address) if store == "postgres" else {}
    every = {"HOLDFAST_POLICY__ENGINE__SNAPSHOT_EVERY_EVENTS": "1000"}
    node = NodeProcess(place.folder / "data", environ=settings | every)
    try:
        await node.up()
        assert doctor(node.data, settings)[0] == 0
        async with NodeSocket(node.data, 60) as client:
            await client.mint(bytes(32), "alice", 10**6)
        await asyncio.gather(*(spend(node.data, number) for number in range(8)))
        while not list((node.data / "snapshots").glob("*.snapshot")):
            await asyncio.sleep(0.05)
        assert await node.stop() == 0
        await node.up()  # and starts from it
        async with NodeSocket(node.data, 60) as client:
            assert (await client.account("alice"))["held"] == 1_200
            assert (await client.status())["phase"] == EngineStatus.RUNNING
        assert await node.stop() == 0
    finally:
        node.end()


async def spend(data: Path, number: int) -> None:
    async with NodeSocket(data, 60) as client:
        for turn in range(150):
            await client.reserve((number * 1_000 + turn + 1).to_bytes(32, "big"), "alice", 1)
