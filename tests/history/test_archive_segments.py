"""Archive segments and the full journal: trimmed batches are still one history, and any damage is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.commands import histories, some_id
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import SimulatedFiles, World, small_batches

import holdfast.history.archive_segments as segments_module
from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import Command, JournalHead
from holdfast.core.base.values import AccountId, Amount, BatchNo, EventNo
from holdfast.core.escrow.messages import Mint, Reserve
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.recover import rebuild_tables, recover
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.archive_segments import SegmentFolder, copy_journal, decode_segment, parse_segment_name
from holdfast.history.full_journal import FullJournal

ALICE = AccountId("alice")
pytestmark = pytest.mark.rule("ENG-004")


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_module, "BATCHES_MAX", 3)


async def lived(world: World, mints: int = 20) -> Engine:
    engine = await world.started()
    for n in range(1, mints + 1):
        await engine.submit(Mint(some_id(n), ALICE, Amount(10)))
    await engine.submit(Reserve(some_id(500), ALICE, Amount(3), b"large" * 2_000))
    await engine.submit(Reserve(some_id(501), ALICE, Amount(3), b"small"))
    await engine.wait_tables()
    return engine


def full_journal(world: World, archive: SimulatedFiles) -> FullJournal:
    return FullJournal(SimulatedJournal(world.disk, ignores_lock=True), archive)


async def numbers(journal: FullJournal, after: int = 0, until: int | None = None) -> list[int]:
    until_ = None if until is None else BatchNo(until)
    return [batch.number async for batch in journal.read(BatchNo(after), until_)]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
async def test_reading_crosses_from_archive_to_store_without_a_seam(trim: int, after: int, until: int) -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await lived(world)
    journal = full_journal(world, archive)
    await journal.trim(BatchNo(trim))
    assert await journal.store.trimmed_until() == min(trim, 22)
    assert await journal.trimmed_until() == 0
    assert await numbers(journal, after, until) == [n for n in range(1, 24) if after < n <= until]
    assert await numbers(journal) == list(range(1, 24))
    for event in range(1, 24):
        assert await journal.batch_of(EventNo(event)) == event
    await engine.stop()


async def test_a_trimmed_node_recovers_the_same_state_and_still_reads_its_oldest_memo() -> None:
    world, archive = World(), SimulatedFiles()
    engine = await lived(world)
    await snapshot_files.make(world.files, engine.journal, world.policy)
    before = digest(engine.undurable_state)
    await engine.stop()
    journal = full_journal(world, archive)
    await journal.trim(BatchNo(10**6))
    assert len(world.disk.batches) == 1
    found = await recover(journal, world.tables, world.files, world.policy)
    assert digest(found.state) == before
    successor = Engine(journal, world.tables, world.files, world.clock, world.policy)
    await successor.start()
    for number, memo in ((500, b"large" * 2_000), (501, b"small")):
        hold = await queries.reservation(successor, some_id(number))
        assert hold is not None
        assert await queries.memo(successor, hold) == memo
    assert [recorded.number async for recorded in limited(successor, 24)] == list(range(1, 25))
    await successor.stop()


async def limited(engine: Engine, count: int):  # type: ignore[no-untyped-def]
    async for recorded in engine.event_stream.follow(EventNo(0)):
        yield recorded
        if recorded.number == count:
            return


async def test_tables_are_rebuilt_through_the_archive_and_not_without_it() -> None:
    world, archive = World(), SimulatedFiles()
    engine = await lived(world)
    await engine.stop()
    rows = world.tables.rows
    journal = full_journal(world, archive)
    await snapshot_files.make(world.files, journal, world.policy)
    await journal.trim(BatchNo(10**6))
    await world.tables.drop()
    await rebuild_tables(journal, world.tables, world.files, world.policy, is_dropped=False)
    assert world.tables.rows == rows
    await world.tables.drop()
    assert len(await journal.archive.delete_until(BatchNo(10**6))) == 8
    with pytest.raises(Corrupt, match="batches 1 to 22 are needed"):
        await recover(journal, world.tables, world.files, world.policy)


async def test_a_snapshot_at_the_trim_point_suffices_when_the_archive_is_gone() -> None:
    world, archive = World(), SimulatedFiles()
    engine = await lived(world)
    await engine.stop()
    journal = full_journal(world, archive)
    await snapshot_files.make(world.files, journal, world.policy)
    await journal.trim(BatchNo(10**6))
    await journal.archive.delete_until(BatchNo(10**6))
    found = await recover(journal, world.tables, world.files, world.policy)
    assert digest(found.state) == digest(engine.undurable_state)


@given(histories, st.data())
async def test_any_flipped_bit_of_an_archive_segment_is_found(history: list[Command], data: st.DataObject) -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await world.started()
    await engine.submit_many(history)
    await engine.stop()
    journal = full_journal(world, archive)
    await copy_journal(journal.store, journal.archive, BatchNo(10**6))
    name = data.draw(st.sampled_from(sorted(archive.files)))
    raw = bytearray(archive.files[name])
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corrupt, match="ENG-004"):
        decode_segment(name, bytes(raw))


async def test_a_missing_swapped_truncated_or_foreign_archive_segment_is_named() -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await lived(world)
    await engine.stop()
    book = SegmentFolder(archive)
    await copy_journal(SimulatedJournal(world.disk), book, BatchNo(10**6))
    whole, names = dict(archive.files), sorted(archive.files)
    other = World(small_batches(events_max=1))
    other.clock.wall = 7
    await (await lived(other)).stop()
    foreign = SimulatedFiles()
    await copy_journal(SimulatedJournal(other.disk), SegmentFolder(foreign), BatchNo(10**6))
    damages = {
        "no segment holds batches 4 to 6": {name: raw for name, raw in whole.items() if name != names[1]},
        "does not hold the batches it is named for": whole | {names[1]: whole[names[2]], names[2]: whole[names[1]]},
        f"{names[2]} is damaged": whole | {names[2]: whole[names[2]][:-1]},
        "does not follow": whole | {names[1]: foreign.files[names[1]]},
    }
    for says, files in damages.items():
        archive.files = files
        with pytest.raises(Corrupt, match=says):
            await _all(book)
    archive.files = whole
    assert len(await _all(book)) == 23


async def _all(book: SegmentFolder) -> list[int]:
    return [entry.batch.number async for entry in book.entries(BatchNo(0))]


async def test_copying_again_adds_only_what_is_new() -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await lived(world)
    book = SegmentFolder(archive)
    await copy_journal(engine.journal, book, BatchNo(7))
    first = dict(archive.files)
    tip = await copy_journal(engine.journal, book, BatchNo(10**6))
    assert {name: archive.files[name] for name in first} == first
    assert tip == engine.durable_head
    assert await _all(book) == list(range(1, 24))
    assert await copy_journal(engine.journal, book, BatchNo(10**6)) == tip
    state = State(world.policy)
    journal_codec.fold(state, JournalHead(), [entry.batch async for entry in book.entries(BatchNo(0))])
    assert digest(state) == digest(engine.undurable_state)
    await engine.stop()


async def test_an_archive_segment_that_reads_back_differently_is_not_trusted_and_nothing_is_trimmed() -> None:
    class BadDisk(SimulatedFiles):
        async def read(self, name: str) -> bytes | None:
            raw = await super().read(name)
            return raw and raw[:-1]

    world = World()
    engine = await lived(world)
    journal = full_journal(world, BadDisk())
    with pytest.raises(Corrupt, match="reads back differently"):
        await journal.trim(BatchNo(5))
    assert len(world.disk.batches) == 23
    await engine.stop()


@pytest.mark.parametrize("text", ["x.segment", "1-2.segment", "1-2.events-3.segment", "a-b.events-c-d.segment", "1-2"])
def test_other_files_are_no_archive_segments(text: str) -> None:
    assert parse_segment_name(text) is None
