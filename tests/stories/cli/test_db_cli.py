"""What an operator does with `holdfast db`, as an operator does it: real folders, real nodes, exit codes that tell."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest
from tests.counts import counts
from tests.simulation.world import stop_engine
from tests.storage.stores import Place
from tests.stories import data_folder as folders
from tests.stories.faults.test_node_killed import CLIENTS, PATIENCE_S, Requester, journal_events
from tests.stories.forked_command import run_program
from tests.stories.node_process import HOLDFAST, NodeProcess, on_postgres

from holdfast.client.node_socket import NodeSocket

Nodes = Callable[..., NodeProcess]


class DbResult(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


def holdfast(*words: object, environ: Mapping[str, str] | None = None) -> DbResult:
    done = run_program(*words, environ=os.environ | dict(environ or {}))
    return DbResult(done.returncode, done.stdout, done.stderr)


async def run_beside(*words: object, environ: Mapping[str, str] | None = None) -> DbResult:
    """The same while this process goes on with its work."""
    return await asyncio.to_thread(holdfast, *words, environ=environ)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made: list[NodeProcess] = []

    def make(name: str, environ: Mapping[str, str] | None = None) -> NodeProcess:
        made.append(NodeProcess(tmp_path / name, name, environ))
        return made[-1]

    yield make
    for node in made:
        node.end()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped node's folder."""
    asyncio.run(folders.make_folder(tmp_path / "data"))
    return tmp_path / "data"


@asynccontextmanager
async def load(data: Path) -> AsyncIterator[list[Requester]]:
    """Callers who work for as long as this lasts, or until their node is killed."""
    async with NodeSocket(data, PATIENCE_S) as client:
        await client.mint(bytes(32), "alice", 10**12)
    requesters = [Requester(data, number) for number in range(CLIENTS)]
    tasks = [asyncio.create_task(requester.work(asyncio.Event())) for requester in requesters]
    try:
        yield requesters
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for requester in requesters:
            await requester.node.close()


async def wait_grown(requesters: list[Requester], by: int) -> None:
    """Until so much more was confirmed."""
    goal = sum(each.count for each in requesters) + by
    while sum(each.count for each in requesters) < goal:
        await asyncio.sleep(0.005)


def confirmed_commands(requesters: list[Requester]) -> Counter[tuple[str, str]]:
    return Counter({(what, id_): 1 for each in requesters for what, ids in each.confirmed.items() for id_ in ids})


# ------------------------------------------------------------------------------------------------ backup and restore


@pytest.mark.rule("ENG-002", "ENG-003", "ENG-004", "ENG-005", "ENG-007")
@pytest.mark.parametrize("target", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def test_a_backup_made_under_load_brings_back_all_that_was_confirmed_before_it(
    nodes: Nodes, place: Place, tmp_path: Path, target: str
) -> None:
    node, backup = nodes("first"), tmp_path / "backup"
    await node.up()
    async with load(node.data) as requesters:
        for _ in range(counts(2, 6)):
            await wait_grown(requesters, 200)
            before = confirmed_commands(requesters)
            said = await run_beside("db", "export", "--data", node.data, "--to", backup)
            assert said.code == 0, said.err
        await wait_grown(requesters, 50)
        await node.kill()
    manifest = json.loads((backup / "manifest.json").read_text())

    environ = on_postgres(place.address) if target == "postgres" else {}
    restored = nodes("second", environ)
    said = await run_beside("db", "import", "--from", backup, "--data", restored.data, environ=environ)
    assert said.code == 0, said.err
    assert manifest["digest"] in said.out
    await restored.up()
    seen, numbers = await journal_events(restored.data)
    assert before - seen == Counter(), "confirmed before the export began, yet missing"
    assert [key for key, times in seen.items() if times > 1] == []
    assert numbers == list(range(1, manifest["events"] + 2)), "and the new owner's first event"
    said = await run_beside("db", "check", "--data", restored.data, environ=environ)
    assert said.code == 0, said.out
    assert await restored.stop() == 0


@pytest.mark.rule("ENG-004")
async def test_an_import_killed_in_the_middle_goes_on(tmp_path: Path, data: Path) -> None:
    backup, target = tmp_path / "backup", tmp_path / "target"
    assert holdfast("db", "export", "--data", data, "--to", backup).code == 0
    words = [str(HOLDFAST), "db", "import", "--from", str(backup), "--data", str(target)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and batches_in(target) < 10:
            await asyncio.sleep(0.001)
        process.kill()
    said = holdfast("db", "import", "--from", backup, "--data", target)
    assert said.code == 0, said.err
    assert "52 events in 52 batches" in said.out
    assert "history      52 events in 52 batches" in holdfast("db", "check", "--data", target).out


def batches_in(data: Path) -> int:
    try:
        db = apsw.Connection(str(data / "journal.db"), flags=apsw.SQLITE_OPEN_READONLY)
        return int(db.execute("SELECT count(*) FROM batch").get)
    except apsw.Error:
        return 0


@pytest.mark.rule("ENG-004")
def test_an_import_into_a_folder_that_is_not_empty_is_refused(tmp_path: Path, data: Path) -> None:
    backup, other = tmp_path / "backup", tmp_path / "other"
    assert holdfast("db", "export", "--data", data, "--to", backup).code == 0
    for _ in range(2):
        asyncio.run(started_once(other))
    said = holdfast("db", "import", "--from", backup, "--data", other)
    assert said.code == 1
    assert "holds 2 batches that are not the beginning of this export" in said.err
    assert holdfast("db", "import", "--from", tmp_path / "nothing", "--data", other).code == 2
    (tmp_path / "empty").mkdir()
    assert holdfast("db", "import", "--from", tmp_path / "empty", "--data", tmp_path / "new").code == 1
    segment = min(backup.glob("*.segment"))
    segment.write_bytes(segment.read_bytes()[:-1])
    said = holdfast("db", "import", "--from", backup, "--data", tmp_path / "new")
    assert said.code == 74
    assert f"segment {segment.name} is damaged" in said.err
    assert batches_in(tmp_path / "new") == 0


async def started_once(folder: Path) -> None:
    engine = folders.engine_on(folder)
    await engine.start()
    await stop_engine(engine)


@pytest.mark.rule("ENG-004")
def test_an_export_into_somebody_elses_folder_is_refused(tmp_path: Path, data: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    said = holdfast("db", "export", "--data", data, "--to", tmp_path / "photos")
    assert said.code == 1
    assert "has other files" in said.err
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]
    assert holdfast("db", "export", "--data", tmp_path / "nowhere", "--to", tmp_path / "new").code == 75


# ------------------------------------------------------------------------------------------------ archive


@pytest.mark.rule("ENG-004", "ENG-006")
async def test_archiving_beside_a_node_under_load_loses_no_event_and_no_answer(nodes: Nodes) -> None:
    node = nodes("node")
    await node.up()
    async with load(node.data) as requesters:
        for _ in range(3):
            await wait_grown(requesters, 150)
            assert (await run_beside("db", "snapshot", "--data", node.data)).code == 0
        before, said = (
            confirmed_commands(requesters),
            await run_beside("db", "archive", "--data", node.data, "--keep-batches", 5),
        )
        assert said.code == 0, said.err
        assert said.out.startswith("moved batches 1 to ")
        await wait_grown(requesters, 50)
    seen, numbers = await journal_events(node.data)
    assert before - seen == Counter()
    assert numbers == list(range(1, len(numbers) + 1))
    assert (await run_beside("db", "check", "--data", node.data)).code == 0
    await node.kill()
    await node.up()
    assert before - (await journal_events(node.data))[0] == Counter()
    assert await node.stop() == 0
    listed = (await run_beside("db", "archive", "list", "--data", node.data)).out
    assert re.search(r"^[1-9]\d* segments?$", listed, re.MULTILINE), listed


@pytest.mark.rule("ENG-004")
def test_deleting_from_the_archive_needs_confirmation_and_says_what_is_lost(data: Path) -> None:
    said = holdfast("db", "archive", "list", "--data", data)
    assert "batches 1-5  events 1-5" in said.out
    assert "4 segments" in said.out
    said = holdfast("db", "archive", "delete", "--until", 12, "--data", data)
    assert said.code == 1
    assert "Delete 2 segments with batches 1 to 10, events up to 10?" in said.err
    assert "pass --yes" in said.err
    assert "tables cannot be rebuilt" in said.err
    assert "4 segments" in holdfast("db", "archive", "list", "--data", data).out
    assert holdfast("db", "archive", "delete", "--until", 4, "--data", data, "--yes").code == 1
    assert holdfast("db", "archive", "delete", "--data", data, "--yes").code == 2
    said = holdfast("db", "archive", "delete", "--until", 12, "--data", data, "--yes")
    assert (said.code, said.out) == (0, "deleted 2 segments with batches 1 to 10, events up to 10\n")
    assert "2 segments" in holdfast("db", "archive", "list", "--data", data).out
    said = holdfast("db", "check", "--data", data)
    assert said.code == 0, said.out
    assert "the 10 before were deleted" in said.out
    said = holdfast("db", "rebuild", "--data", data)
    assert (said.code, "batches 1 to 10 were deleted" in said.err) == (1, True)


# ------------------------------------------------------------------------------------------------ check and rebuild


@pytest.mark.rule("ENG-003", "ENG-004")
def test_check_and_rebuild_tell_by_their_exit_codes(tmp_path: Path, data: Path) -> None:
    said = holdfast("db", "check", "--data", data)
    assert (said.code, said.err) == (0, "")
    assert said.out.count("✔ ") == 10
    db = apsw.Connection(str(data / "tables.db"))
    db.execute("UPDATE account SET available = 10000000 WHERE owner = 'alice'")
    db.close()
    said = holdfast("db", "check", "--data", data)
    assert said.code == 1
    assert "▲ tables       1 different: account alice" in said.out
    assert "→ nothing is lost: stop the node and run holdfast db rebuild" in said.out
    said = holdfast("db", "rebuild", "--data", data)
    assert (said.code, said.out) == (0, "tables rebuilt up to batch 52, event 52\n")
    assert holdfast("db", "check", "--data", data).code == 0
    db = apsw.Connection(str(data / "journal.db"))
    db.execute("UPDATE batch SET time_ms = time_ms + 1 WHERE number = 30")
    db.close()
    said = holdfast("db", "check", "--data", data)
    assert said.code == 74
    assert "batch 30 does not match its stored hash" in said.out
    assert holdfast("db", "rebuild", "--data", data).code == 74
    assert holdfast("db", "check", "--data", tmp_path / "nowhere").code == 75
    assert holdfast("db", "check", "--colour").code == 2


@pytest.mark.rule("ENG-001")
async def test_a_rebuild_beside_a_running_node_is_refused(nodes: Nodes) -> None:
    node = nodes("node")
    await node.up()
    said = await run_beside("db", "rebuild", "--data", node.data)
    assert said.code == 75
    assert f"process {node.pid} owns" in said.err
    assert (await run_beside("db", "check", "--data", node.data)).code == 0
    assert await node.stop() == 0
