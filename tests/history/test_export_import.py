"""Export and import: the same history elsewhere, verified, incremental, and continued after an interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.commands import histories, some_id
from tests.simulation.journal import Disk, Fault, SimulatedJournal
from tests.simulation.world import DEVELOPMENT, SimulatedFiles, World, small_batches

import holdfast.history.archive_segments as segments_module
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.event import Attachment, Batch, Command
from holdfast.core.base.values import AccountId, Amount, BatchNo
from holdfast.core.escrow.messages import Mint, Reserve
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine
from holdfast.engine.recover import recover
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.archive_segments import SegmentFolder
from holdfast.history.export_import import MANIFEST, ExportManifest, export_journal, import_journal
from holdfast.history.full_journal import FullJournal

ALICE = AccountId("alice")
pytestmark = pytest.mark.rule("ENG-003", "ENG-004")


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_module, "BATCHES_MAX", 3)


def journal_on(disk: Disk, archive: SimulatedFiles | None = None) -> FullJournal:
    return FullJournal(SimulatedJournal(disk, ignores_lock=True), archive or SimulatedFiles())


async def lived(world: World, first: int = 1, last: int = 10) -> Engine:
    engine = await world.started()
    for n in range(first, last + 1):
        await engine.submit(Mint(some_id(n), ALICE, Amount(10)))
    await engine.submit(Reserve(some_id(1_000 + first), ALICE, Amount(3), b"large" * 2_000))
    await engine.wait_tables()
    return engine


async def exported(world: World, folder: SimulatedFiles, archive: SimulatedFiles | None = None) -> ExportManifest:
    manifest = await export_journal(journal_on(world.disk, archive), folder, DEVELOPMENT)
    assert isinstance(manifest, ExportManifest)
    return manifest


async def restored(disk: Disk) -> World:
    """A world on an imported journal; its tables are made by the first recovery."""
    world = World()
    world.disk = disk
    return world


@given(histories, st.integers(0, 60), st.integers(0, 40))
async def test_whatever_happened_is_the_same_elsewhere(history: list[Command], cut: int, trim: int) -> None:
    world, archive, folder = World(small_batches(events_max=2)), SimulatedFiles(), SimulatedFiles()
    engine = await world.started()
    await engine.submit_many(history[:cut])
    await exported(world, folder)
    await engine.submit_many(history[cut:])
    await engine.wait_tables()  # what the tables need is not trimmed
    await journal_on(world.disk, archive).trim(BatchNo(trim))
    manifest = await exported(world, folder, archive)
    assert manifest.digest == digest(engine.undurable_state).hex()
    assert (manifest.batches, manifest.events) == (engine.durable_head.number, engine.durable_head.last)
    target = Disk()
    assert await import_journal(folder, journal_on(target), DEVELOPMENT) == manifest
    there = await restored(target)
    assert digest(await there.recovered()) == digest(engine.undurable_state)
    for batch in target.batches:
        source = journal_on(world.disk, archive)
        assert await SimulatedJournal(target).attachments(batch.number) == await source.attachments(batch.number)
    await engine.stop()


async def test_an_export_again_adds_only_what_is_new_and_rewrites_no_archive_segment() -> None:
    world, folder = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await lived(world)
    await exported(world, folder)
    first = {name: raw for name, raw in folder.files.items() if name.endswith(".segment")}
    assert await exported(world, folder) == await exported(world, folder)
    assert {name for name in folder.files if name.endswith(".segment")} == first.keys()
    await engine.submit(Mint(some_id(99), ALICE, Amount(1)))
    read: list[int] = []
    world.disk.on_read = read.append
    manifest = await exported(world, folder)
    assert first.items() < folder.files.items()
    assert min(read) >= 11, "what was exported is not read from the store again"
    assert manifest.digest == digest(engine.undurable_state).hex()
    await engine.stop()


async def test_an_export_beside_a_running_node_holds_all_that_was_confirmed_before_it_began() -> None:
    world, folder = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await lived(world)
    stop, number = asyncio.Event(), 100

    async def work() -> None:
        nonlocal number
        while not stop.is_set():
            number += 1
            await engine.submit(Mint(some_id(number), ALICE, Amount(1)))

    task = asyncio.create_task(work())
    for _ in range(5):
        await asyncio.sleep(0.01)
        confirmed = engine.durable_head
        manifest = await exported(world, folder)
        assert manifest.events >= confirmed.last
    stop.set()
    await task
    target = Disk()
    await import_journal(folder, journal_on(target), DEVELOPMENT)
    assert target.batches == world.disk.batches[: manifest.batches]
    await engine.stop()


@pytest.mark.parametrize("cut", [1, 2, 5, 10])
async def test_an_import_that_was_cut_goes_on(cut: int) -> None:
    world, folder, target = World(small_batches(events_max=1)), SimulatedFiles(), Disk()
    engine = await lived(world)
    manifest = await exported(world, folder)
    target.faults = [*[None] * cut, Fault.FAIL_AFTER if cut % 2 else Fault.FAIL]
    with pytest.raises(Unavailable):
        await import_journal(folder, journal_on(target), DEVELOPMENT)
    assert 0 < len(target.batches) < manifest.batches
    assert await import_journal(folder, journal_on(target), DEVELOPMENT) == manifest
    assert target.batches == world.disk.batches
    assert await import_journal(folder, journal_on(target), DEVELOPMENT) == manifest, "once more changes nothing"
    await engine.stop()


async def test_an_import_into_a_store_with_another_history_is_refused_and_changes_nothing() -> None:
    world, other, folder = World(), World(), SimulatedFiles()
    await lived(world)
    other.clock.wall = 7
    await lived(other, 50, 52)
    await exported(world, folder)
    before = list(other.disk.batches)
    no = await import_journal(folder, journal_on(other.disk), DEVELOPMENT)
    assert isinstance(no, Refused)
    assert f"holds {len(before)} batches that are not the beginning of this export" in no.message
    assert other.disk.batches == before


async def test_an_import_beside_an_archive_is_refused() -> None:
    world, folder, archive = World(), SimulatedFiles(), SimulatedFiles()
    await lived(world)
    await exported(world, folder)
    await journal_on(world.disk, archive).trim(BatchNo(3))
    no = await import_journal(folder, journal_on(Disk(), archive), DEVELOPMENT)
    assert isinstance(no, Refused)
    assert "there is already an archive" in no.message


async def test_a_longer_history_than_the_export_is_not_its_beginning() -> None:
    world, folder = World(), SimulatedFiles()
    engine = await lived(world)
    await exported(world, folder)
    await engine.submit(Mint(some_id(99), ALICE, Amount(1)))
    no = await import_journal(folder, journal_on(world.disk), DEVELOPMENT)
    assert isinstance(no, Refused)
    await engine.stop()


async def test_any_damage_to_an_export_is_named_before_anything_is_written() -> None:
    world, folder = World(small_batches(events_max=1)), SimulatedFiles()
    await lived(world)
    await exported(world, folder)
    whole = dict(folder.files)
    segments = [name for name in whole if name.endswith(".segment")]
    manifest = msgspec.json.decode(whole[MANIFEST])
    damages = [
        whole | {segments[1]: whole[segments[1]][:-1] + b"?"},
        whole | {segments[1]: whole[segments[1]][:100]},
        {name: raw for name, raw in whole.items() if name != segments[1]},
        {name: raw for name, raw in whole.items() if name != segments[-1]},
        {name: raw for name, raw in whole.items() if name != segments[0]},
        whole | {segments[0]: whole[segments[1]], segments[1]: whole[segments[0]]},
        whole | {MANIFEST: whole[MANIFEST][:-10]},
        *[whole | {MANIFEST: msgspec.json.encode(manifest | wrong)} for wrong in _wrong(manifest)],
    ]
    for files in damages:
        folder.files, target = files, Disk()
        with pytest.raises(Corrupt, match="ENG-00"):
            await import_journal(folder, journal_on(target), DEVELOPMENT)
        assert target.batches == []


def _wrong(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    numbers = ("format", "batches", "events", "term", "time_ms")
    wrong: list[dict[str, Any]] = [{name: manifest[name] + 1} for name in numbers]
    return [*wrong, {"hash": "00" * 32}, {"digest": "00" * 32}, {"batches": "many"}]


@pytest.mark.rule("ENG-007")
async def test_an_export_that_lost_a_payload_is_not_imported() -> None:
    world, folder, target = World(), SimulatedFiles(), Disk()
    await lived(world)
    world.disk.attachments.clear()
    await exported(world, folder)
    with pytest.raises(Corrupt, match="the payload of event 12 is missing in the export"):
        await import_journal(folder, journal_on(target), DEVELOPMENT)
    assert target.batches == []


async def test_a_folder_without_a_manifest_is_no_export() -> None:
    no = await import_journal(SimulatedFiles(), journal_on(Disk()), DEVELOPMENT)
    assert isinstance(no, Refused)
    assert MANIFEST in no.message


async def test_what_an_unfinished_export_added_is_not_imported() -> None:
    world, folder, target = World(small_batches(events_max=1)), SimulatedFiles(), Disk()
    engine = await lived(world)
    manifest = await exported(world, folder)
    await engine.submit(Mint(some_id(99), ALICE, Amount(1)))
    await segments_module.copy_journal(
        journal_on(world.disk), SegmentFolder(folder), BatchNo(10**6)
    )  # cut before the manifest
    assert await import_journal(folder, journal_on(target), DEVELOPMENT) == manifest
    assert len(target.batches) == manifest.batches
    assert (await exported(world, folder)).batches == manifest.batches + 1
    await engine.stop()


async def test_the_export_of_another_journal_is_not_gone_on_with() -> None:
    world, other, folder = World(), World(), SimulatedFiles()
    await lived(world)
    other.clock.wall = 7
    await lived(other, 1, 30)
    await exported(world, folder)
    before = dict(folder.files)
    no = await export_journal(journal_on(other.disk), folder, DEVELOPMENT)
    assert isinstance(no, Refused)
    assert "another journal" in no.message
    assert folder.files == before


async def test_an_empty_journal_is_not_exported() -> None:
    assert isinstance(await export_journal(journal_on(Disk()), SimulatedFiles(), DEVELOPMENT), Refused)


async def test_after_archive_segments_were_deleted_only_an_export_that_has_them_goes_on() -> None:
    world, archive, folder = World(small_batches(events_max=1)), SimulatedFiles(), SimulatedFiles()
    engine = await lived(world)
    journal = journal_on(world.disk, archive)
    await exported(world, folder, archive)
    await snapshot_files.make(world.files, journal, world.policy)
    await engine.submit(Mint(some_id(99), ALICE, Amount(1)))
    await journal.trim(BatchNo(9))
    await journal.archive.delete_until(BatchNo(9))
    no = await export_journal(journal, SimulatedFiles(), DEVELOPMENT)
    assert isinstance(no, Refused)
    assert "batches 1 to 9 were deleted" in no.message
    manifest = await exported(world, folder, archive)
    target = Disk()
    assert await import_journal(folder, journal_on(target), DEVELOPMENT) == manifest
    assert digest(await (await restored(target)).recovered()) == digest(engine.undurable_state)
    await journal.trim(BatchNo(10**6))
    assert await journal.trimmed_until() == 9, "a new archive begins where the store began"
    found = await recover(journal, world.tables, world.files, world.policy)
    assert digest(found.state) == digest(engine.undurable_state)
    await engine.stop()


@pytest.mark.rule("ENG-007")
async def test_a_store_that_gives_back_something_else_is_reported() -> None:
    class Forgetful(SimulatedJournal):
        async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
            await super().append(batch, ())

    world, folder = World(), SimulatedFiles()
    await lived(world)
    await exported(world, folder)
    target = FullJournal(Forgetful(Disk()), SimulatedFiles())
    with pytest.raises(Corrupt, match="batch 12 reads back differently"):
        await import_journal(folder, target, DEVELOPMENT)
