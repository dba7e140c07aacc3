"""Recovery: a snapshot and the journal after it give the state that lived, on real stores too."""

from __future__ import annotations

from errno import ENOSPC
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.commands import histories, some_id
from tests.simulation.tables import SimulatedTables
from tests.simulation.world import DEVELOPMENT, SimulatedFiles, World, small_batches, stop_engine
from tests.storage.stores import JOURNALS, TABLES, Place

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import AtomicFolder
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, EventNo
from holdfast.core.escrow.messages import Mint, Reserve
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.engine.recover import recover
from holdfast.engine.snapshots import snapshot_files
from holdfast.engine.snapshots.state_snapshot import snapshot

ALICE = AccountId("alice")
pytestmark = pytest.mark.rule("ENG-003")


def mints(first: int, last: int) -> list[Mint]:
    return [Mint(some_id(n), ALICE, Amount(n)) for n in range(first, last + 1)]


@given(histories, st.lists(st.integers(0, 40), max_size=4), st.booleans())
async def test_recovery_gives_the_live_state_with_any_snapshots_and_tables_anywhere(
    history: list[Command], cuts: list[int], tables_lost: bool
) -> None:
    world = World(small_batches())
    engine = await world.started()
    for at, command in enumerate(history):
        await engine.submit(command)
        if at in cuts:
            await engine.wait_tables()
            await snapshot_files.make(world.files, engine.journal, world.policy)
    await engine.projector.stop()
    before = digest(engine.undurable_state)
    if tables_lost:
        await world.tables.drop()
    assert digest(await world.recovered()) == before
    await world.projected()
    assert world.tables.at == engine.durable_head


async def test_a_damaged_snapshot_is_passed_over_for_the_one_before() -> None:
    world = World()
    engine = await world.started()
    for first in (1, 10):
        await engine.submit_many(mints(first, first + 5))
        await snapshot_files.make(world.files, engine.journal, world.policy)
    await engine.stop()
    newest = max(world.files.files)
    world.files.files[newest] = world.files.files[newest][:-1] + b"?"
    state, tip = await snapshot_files.load_newest(world.files, engine.journal, world.policy, 10**9)
    assert snapshot_files.file_name(tip) == min(world.files.files)
    again = await world.started()
    assert again.undurable_state.ledger.accounts[ALICE] == engine.undurable_state.ledger.accounts[ALICE]
    assert state.last_event < again.undurable_state.last_event
    await again.stop()


async def test_a_snapshot_of_another_journal_is_not_believed() -> None:
    theirs = World()
    other = await theirs.started()
    await other.submit_many(mints(50, 60))
    await snapshot_files.make(theirs.files, other.journal, theirs.policy)
    await other.stop()
    world = World()
    world.files = theirs.files
    engine = await world.started()
    await engine.submit_many(mints(1, 20))
    await engine.stop()
    again = await world.started()
    assert again.undurable_state.ledger.accounts[ALICE].available == sum(range(1, 21))
    await again.stop()


async def test_the_two_newest_snapshots_are_kept() -> None:
    world = World()
    engine = await world.started()
    for first in (1, 10, 20, 30):
        await engine.submit_many(mints(first, first + 5))
        tip = await snapshot_files.make(world.files, engine.journal, world.policy)
        assert tip == await engine.journal.tip()
    assert await snapshot_files.make(world.files, engine.journal, world.policy) == tip  # nothing new, nothing made
    assert len(world.files.files) == 2
    await engine.stop()


async def test_a_damaged_snapshot_is_not_one_of_the_two_that_are_kept() -> None:
    world = World()
    engine = await world.started()
    for first in (1, 10):
        await engine.submit_many(mints(first, first + 5))
        await snapshot_files.make(world.files, engine.journal, world.policy)
    good, damaged = sorted(world.files.files)
    world.files.files[damaged] = world.files.files[damaged][:-1] + b"?"
    await engine.submit_many(mints(20, 25))
    newest = await snapshot_files.make(world.files, engine.journal, world.policy)
    assert sorted(world.files.files) == [good, snapshot_files.file_name(newest)]
    await engine.stop()


async def test_a_snapshot_is_kept_below_those_of_a_journal_that_was_longer() -> None:
    """A backup was restored: the snapshots beside it are of batches that do not exist any more."""
    world = World()
    engine = await world.started()
    for number in range(1, 9):
        await engine.submit(Mint(some_id(number), ALICE, Amount(1)))
        await snapshot_files.make(world.files, engine.journal, world.policy)
    await engine.stop()
    world.disk.batches, world.tables = world.disk.batches[:3], SimulatedTables()
    again = await world.started()
    await again.submit(Mint(some_id(20), ALICE, Amount(1)))
    tip = await snapshot_files.make(world.files, again.journal, world.policy)
    assert await snapshot_files.list_usable(world.files, again.journal, world.policy) == [tip]
    await again.stop()


async def test_a_snapshot_that_reads_back_differently_is_not_trusted() -> None:
    class BadDisk(SimulatedFiles):
        async def read(self, name: str) -> bytes | None:
            raw = await super().read(name)
            return raw and raw[:-1]

    world = World()
    engine = await world.started()
    await engine.submit_many(mints(1, 3))
    with pytest.raises(Corrupt, match="reads back differently"):
        await snapshot_files.make(BadDisk(), engine.journal, world.policy)
    await engine.stop()


async def test_a_snapshot_above_the_tables_is_not_used_so_that_the_tables_miss_nothing() -> None:
    world = World()
    engine = await world.started()
    await engine.wait_tables()
    await engine.projector.stop()
    await engine.submit_many(mints(1, 3))
    await snapshot_files.make(world.files, engine.journal, world.policy)
    again = await world.started()
    await again.stop()
    assert world.tables.rows["account"][ALICE] == (ALICE, 6, 0, 0)


# ------------------------------------------------------------------------------------------------ on real stores


def real_engine(place: Place, store: str) -> Engine:
    files = AtomicFolder(place.folder / "snapshots")
    return Engine(JOURNALS[store](place)(), TABLES[store](place)(), files, MachineClock(), DEVELOPMENT)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_node_on_a_real_store_is_the_same_after_a_restart(place: Place, store: str) -> None:
    engine = real_engine(place, store)
    await engine.start()
    await engine.submit_many(mints(1, 50))
    await engine.submit(Reserve(some_id(100), ALICE, Amount(7), b"m" * 50_000))
    await snapshot_files.make(AtomicFolder(place.folder / "snapshots"), engine.journal, DEVELOPMENT)
    await engine.submit(Reserve(some_id(101), ALICE, Amount(8), b"small"))
    before = digest(engine.undurable_state)
    await stop_engine(engine)

    engine = real_engine(place, store)
    tables = TABLES[store](place)()
    found = await recover(engine.journal, tables, AtomicFolder(place.folder / "snapshots"), DEVELOPMENT)
    await tables.close()
    assert digest(found.state) == before
    await engine.start()
    await assert_remembers(engine)
    await stop_engine(engine)


async def assert_remembers(engine: Engine) -> None:
    for number, memo in ((100, b"m" * 50_000), (101, b"small")):
        hold = await queries.reservation(engine, some_id(number))
        assert hold is not None
        assert await queries.memo(engine, hold) == memo
    assert await engine.submit(mints(1, 1)[0]) == Accepted(EventNo(2), is_repeat=True)


async def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    folder = AtomicFolder(tmp_path / "new")
    assert await folder.names() == []
    assert await folder.read("a") is None
    await folder.replace("a", b"one")
    await folder.replace("a", b"two")
    (tmp_path / "new" / "b.tmp").write_bytes(b"half")  # what a crash in the middle leaves
    assert await folder.names() == ["a"]
    assert await folder.read("a") == b"two"
    await folder.delete("a")
    await folder.delete("a")
    assert await folder.names() == []


async def test_what_did_not_fit_or_was_cut_does_not_lie_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(ENOSPC, "No space left on device")

    folder = AtomicFolder(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(Unavailable, match="No space left"):
            await folder.replace("one", b"1")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "two.tmp").write_bytes(b"hal")  # by a process that was killed
    with (tmp_path / "three.tmp").open("wb") as file:  # by one that is at it
        flock(file, LOCK_EX)
        await folder.replace("four", b"4")
        with pytest.raises(Unavailable):
            await folder.replace("three", b"3")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["four", "three.tmp"]


async def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="ENG-003"):
        await AtomicFolder(tmp_path / "file" / "below").replace(
            "a", snapshot(World().engine().undurable_state, World().engine().durable_head)
        )
