"""Trim and rebuild: what a start needs stays, readers lose nothing, tables are emptied only when history is whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.commands import some_id
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import SimulatedFiles, World, small_batches

import holdfast.history.archive_segments as segments_module
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.event import Batch, head_of
from holdfast.core.base.values import AccountId, Amount, BatchNo, EventNo
from holdfast.core.escrow.messages import Mint, Reserve
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine
from holdfast.engine.recover import recover
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.full_journal import FullJournal
from holdfast.history.rebuild import rebuild
from holdfast.history.trim import trim_bound

ALICE = AccountId("alice")
pytestmark = pytest.mark.rule("ENG-004")


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_module, "BATCHES_MAX", 3)


def full_journal(world: World, archive: SimulatedFiles) -> FullJournal:
    return FullJournal(SimulatedJournal(world.disk, ignores_lock=True), archive)


async def mint(engine: Engine, first: int, last: int) -> None:
    for n in range(first, last + 1):
        await engine.submit(Mint(some_id(n), ALICE, Amount(1)))


@given(st.lists(st.integers(1, 8), max_size=5), st.integers(0, 30), st.booleans(), st.booleans())
async def test_after_archiving_a_node_starts_without_the_archive_also_with_one_snapshot_damaged(
    pieces: list[int], keep: int, is_damaged: bool, is_behind: bool
) -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine, number = await world.started(), 1
    for size in pieces:
        await mint(engine, number, number + size)
        number += size + 1
        await engine.wait_tables()
        await snapshot_files.make(world.files, engine.journal, world.policy)
    if is_behind:
        await engine.projector.stop()
    await mint(engine, 500, 505)
    before = digest(engine.undurable_state)
    await engine.stop()
    journal = full_journal(world, archive)
    found = await trim_bound(journal, world.tables, world.files, world.policy, keep)
    await journal.trim(found.until)
    assert len(world.disk.batches) >= min(max(1, keep), engine.durable_head.number)
    archive.files.clear()
    if is_damaged and len(world.files.files) == 2:
        newest = max(world.files.files)
        world.files.files[newest] = world.files.files[newest][:-1] + b"?"
    recovered = await recover(journal, world.tables, world.files, world.policy)
    assert digest(recovered.state) == before


async def test_the_bound_says_what_keeps_the_rest() -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    journal = full_journal(world, archive)
    engine = world.engine()
    await engine.start()
    await engine.projector.stop()
    none = await trim_bound(journal, world.tables, world.files, world.policy, 1)
    assert (none.until, "have not reached" in none.reason) == (0, True)
    await engine.stop()
    engine = await world.started()
    await mint(engine, 1, 9)
    await engine.stop()
    found = await trim_bound(journal, world.tables, world.files, world.policy, 4)
    assert (found.until, found.reason) == (world.tables.at.number - 4, "the newest 4 batches stay")
    assert len(world.files.files) == 1, "a snapshot was made where there was none"
    found = await trim_bound(journal, world.tables, world.files, world.policy, 0)
    assert found.until == world.tables.at.number - 1
    engine = await world.started()
    await mint(engine, 20, 29)
    await engine.stop()
    found = await trim_bound(journal, world.tables, world.files, world.policy, 1)
    assert (found.until, "oldest snapshot" in found.reason) == (world.tables.at.number - 11, True)
    await snapshot_files.make(world.files, journal, world.policy)
    del world.files.files[min(world.files.files)]
    world.tables.at = head_of([batch async for batch in journal.read(BatchNo(0))][4])
    found = await trim_bound(journal, world.tables, world.files, world.policy, 1)
    assert (found.until, "before the oldest snapshot" in found.reason) == (0, True)


class JournalTrimmedDuringRead(SimulatedJournal):
    """A store that somebody trims at the worst moment: after a reader has got one batch."""

    trim_at: BatchNo = BatchNo(0)
    owner: FullJournal

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        first, number, read = True, after, super().read
        while True:
            page = [batch async for batch in read(number, until)][:2]
            for batch in page:
                yield batch
                number = batch.number
            if first and self.trim_at:
                first, at, self.trim_at = False, self.trim_at, BatchNo(0)
                await self.owner.trim(at)
            if not page:
                return


@given(st.integers(0, 14), st.integers(0, 14), st.integers(1, 14))
async def test_a_reader_misses_nothing_when_batches_move_under_it(after: int, until: int, trim: int) -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await world.started()
    await mint(engine, 1, 12)
    await engine.submit(Reserve(some_id(99), ALICE, Amount(1), b"large" * 2_000))
    await engine.stop()
    wanted = [n for n in range(1, 15) if after < n <= until]
    for read in ("read", "entries"):
        world.disk.batches, batches = list(world.disk.batches), list(world.disk.batches)
        attachments = dict(world.disk.attachments)
        archive.files.clear()
        store = JournalTrimmedDuringRead(world.disk, ignores_lock=True)
        journal = FullJournal(store, archive)
        store.owner, store.trim_at = FullJournal(SimulatedJournal(world.disk), archive), BatchNo(trim)
        if read == "read":
            assert [batch.number async for batch in journal.read(BatchNo(after), BatchNo(until))] == wanted
        else:
            entries = [entry async for entry in journal.entries(BatchNo(after), BatchNo(until))]
            assert [entry.batch.number for entry in entries] == wanted
            assert [len(entry.attachments) for entry in entries] == [int(n == 14) for n in wanted]
        world.disk.batches, world.disk.attachments = batches, attachments


async def test_archiving_beside_a_running_node_and_its_followers_of_events() -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = Engine(full_journal(world, archive), world.tables, world.files, world.clock, world.policy)
    await engine.start()
    operator = full_journal(world, archive)
    seen: list[int] = []

    async def follow() -> None:
        async for recorded in engine.event_stream.follow(type(engine.durable_head.last)(0)):
            seen.append(recorded.number)

    following = asyncio.create_task(follow())
    for first in range(1, 100, 10):
        await mint(engine, first, first + 9)
        await engine.wait_tables()
        await snapshot_files.make(world.files, operator, world.policy)
        found = await trim_bound(operator, world.tables, world.files, world.policy, 3)
        await operator.trim(found.until)
    assert await operator.store.trimmed_until() > 50
    await engine.stop()
    await following
    assert seen == list(range(1, 102))


@pytest.mark.rule("ENG-006")
async def test_who_follows_from_deleted_history_learns_where_to_begin_and_gets_no_gap() -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    journal = full_journal(world, archive)
    first = Engine(journal, world.tables, world.files, world.clock, world.policy)
    await first.start()
    await mint(first, 1, 30)
    await first.wait_tables()
    await snapshot_files.make(world.files, journal, world.policy)
    await first.stop()
    await journal.trim(BatchNo(20))
    await journal.archive.delete_until(BatchNo(18))
    engine = Engine(journal, world.tables, world.files, world.clock, world.policy)
    await engine.start()
    with pytest.raises(Unavailable, match=r"events 1 to 18 were deleted from the archive \(follow after event 18\)"):
        await anext(engine.event_stream.follow(EventNo(0)))
    seen = engine.event_stream.follow(EventNo(18))
    assert [(await anext(seen)).number for _ in range(14)] == list(range(19, 33))
    assert [await journal.batch_of(EventNo(n)) for n in (1, 18, 19, 20, 21, 33)] == [None, None, 19, 20, 21, None]
    await engine.stop()


# ------------------------------------------------------------------------------------------------ rebuilding


async def test_tables_are_rebuilt_from_archive_and_journal() -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await world.started()
    await mint(engine, 1, 12)
    await engine.stop()
    rows, claims = world.tables.rows, world.tables.claims
    journal = full_journal(world, archive)
    await snapshot_files.make(world.files, journal, world.policy)
    await journal.trim(BatchNo(8))
    world.tables.rows = {"account": {"eve": ("eve", 1, 0, 0)}, "reservation": {}}
    assert await rebuild(journal, world.tables, world.files, world.policy) == engine.durable_head
    assert (world.tables.rows, world.tables.claims, world.tables.at) == (rows, claims, engine.durable_head)


async def test_tables_are_not_emptied_when_history_is_not_whole() -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await world.started()
    await mint(engine, 1, 12)
    await engine.stop()
    journal, rows = full_journal(world, archive), world.tables.rows
    await snapshot_files.make(world.files, journal, world.policy)
    await journal.trim(BatchNo(8))
    name = sorted(archive.files)[1]
    whole = archive.files[name]
    archive.files[name] = whole[:-1] + b"?"
    with pytest.raises(Corrupt, match="is damaged"):
        await rebuild(full_journal(world, archive), world.tables, world.files, world.policy)
    archive.files.clear()
    assert isinstance(await rebuild(journal, world.tables, world.files, world.policy), Refused)
    world.disk.batches.clear()
    assert isinstance(await rebuild(journal, world.tables, world.files, world.policy), Refused)
    assert world.tables.rows == rows


@pytest.mark.rule("ENG-003")
async def test_an_empty_journal_below_tables_that_have_seen_more_is_not_begun_anew() -> None:
    world = World()
    engine = await world.started()
    await engine.stop()
    world.disk.batches.clear()
    with pytest.raises(Corrupt, match="the journal is empty, but the tables have seen batch 1"):
        await world.started()


@pytest.mark.rule("ENG-003")
async def test_a_journal_that_ends_before_its_archive_is_not_begun_upon() -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await world.started()
    await mint(engine, 1, 12)
    await engine.stop()
    journal = full_journal(world, archive)
    await journal.trim(BatchNo(10))
    del world.disk.batches[-5:]
    world.disk.batches.append(engine_batch := [b async for b in journal.archive.read(BatchNo(0))][4])
    assert engine_batch.number == 5
    with pytest.raises(Corrupt, match="the journal ends at batch 5, the archive at batch 10"):
        await journal.acquire()


@pytest.mark.rule("ENG-003")
async def test_a_journal_that_cannot_be_read_to_its_end_is_not_begun_upon() -> None:
    class Short(SimulatedJournal):
        async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
            async for batch in super().read(after, until):
                if batch.number <= 5:
                    yield batch

    world = World(small_batches(events_max=1))
    engine = await world.started()
    await mint(engine, 1, 12)
    await engine.stop()
    await world.tables.drop()
    with pytest.raises(Corrupt, match="the journal ends at batch 13 but cannot be read beyond 5"):
        await recover(Short(world.disk), world.tables, world.files, world.policy)


async def test_tables_of_another_journal_are_not_emptied_when_they_could_not_be_made_again() -> None:
    world, archive = World(small_batches(events_max=1)), SimulatedFiles()
    engine = await world.started()
    await mint(engine, 1, 12)
    await engine.stop()
    journal = full_journal(world, archive)
    await snapshot_files.make(world.files, journal, world.policy)
    await journal.trim(BatchNo(8))
    await journal.archive.delete_until(BatchNo(8))
    world.tables.at = replace(world.tables.at, time_ms=1)
    rows = world.tables.rows
    with pytest.raises(Corrupt, match="batches 1 to 8 to rebuild them are gone"):
        await recover(journal, world.tables, world.files, world.policy)
    assert world.tables.rows == rows
