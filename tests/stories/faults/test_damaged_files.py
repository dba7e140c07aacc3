"""Bytes are flipped, files cut short and exchanged: the node starts with the right state or says what is damaged.

And where it starts, `check` finds the damage, or there is none: every batch, payload, row and id is as it was.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.commands import some_id
from tests.counts import counts
from tests.simulation.world import DEVELOPMENT, stop_engine
from tests.stories import data_folder as folders
from tests.stories.data_folder import (
    FolderContent,
    StartOutcome,
    check_and_start,
    copy_folder,
    engine_on,
    journal_of,
    read_folder,
)

from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import Amount, Digest
from holdfast.core.escrow.messages import Mint
from holdfast.core.state_digest import digest
from holdfast.history.check import IRREPLACEABLE
from holdfast.history.rebuild import rebuild

pytestmark = [pytest.mark.rule("ENG-001", "ENG-003", "ENG-004"), pytest.mark.timeout(counts(120, 1_200))]
NAMES_DAMAGE = re.compile(r"journal\.db|tables\.db|batch(es)? \d+|segment \d+|event \d+|run \d+|the journal is empty")
"""Whatever is said names a file, a batch, a segment or an event."""


class UndamagedFolder:
    """An undamaged folder, and what it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        asyncio.run(folders.make_folder(path))
        self.seen: FolderContent = asyncio.run(read_folder(path))
        verdict = folders.run_check_and_start(copy_folder(path, path.parent / "first"))
        assert verdict.bad == {}
        assert verdict.digest is not None
        self.digest = verdict.digest
        self._copy = path.parent / "copy"

    def copy(self) -> Path:
        return copy_folder(self.path, self._copy)

    def check_damaged(self, damaged: Path) -> StartOutcome:
        """Never a wrong state, never an error of another kind, never damage that is nowhere told."""

        async def look() -> StartOutcome:
            before = copy_folder(damaged, damaged.parent / "before")
            verdict = await check_and_start(damaged)
            if not verdict.bad:
                assert await read_folder(before) == self.seen, "damage that was not found"
            return verdict

        verdict = asyncio.run(look())
        assert verdict.digest in (self.digest, None), "a wrong state"
        if verdict.digest is None:
            assert NAMES_DAMAGE.search(verdict.fault), verdict.fault
            assert verdict.bad, f"a check must find what keeps a node from starting: {verdict.fault}"
        return verdict


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UndamagedFolder]:
    place = tmp_path_factory.mktemp("damage")
    yield UndamagedFolder(place / "data")
    shutil.rmtree(place)


def positions(size: int, wanted: int) -> range:
    """This many of all bytes, in steps that meet every offset within a page; all of them if all are wanted."""
    return range(0, size, max(1, size // wanted | 1))


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= (0x01, 0x80, 0xFF, 0x20)[at % 4]
    path.write_bytes(raw)


def files_of(path: Path, kind: str) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.glob(kind))


@pytest.mark.parametrize("name", ["journal.db", "tables.db"])
def test_a_flipped_byte_of_a_database_is_harmless_or_found(whole: UndamagedFolder, name: str) -> None:
    size, said = (whole.path / name).stat().st_size, set[str]()
    for at in positions(size, counts(60, 600)):
        damaged = whole.copy()
        flip(damaged / name, at)
        verdict = whole.check_damaged(damaged)
        said |= verdict.bad.keys()
        if name == "tables.db":
            assert IRREPLACEABLE.isdisjoint(verdict.bad), f"byte {at}: the journal is not to blame for {verdict.bad}"
    assert said, "no damage was found at all: the positions are badly chosen"


def test_a_flipped_byte_of_a_snapshot_costs_nothing_but_that_snapshot(whole: UndamagedFolder) -> None:
    for name in files_of(whole.path, "snapshots/*"):
        for at in positions((whole.path / name).stat().st_size, counts(7, 200)):
            damaged = whole.copy()
            flip(damaged / name, at)
            verdict = whole.check_damaged(damaged)
            assert verdict.digest == whole.digest
            assert list(verdict.bad) == ["snapshots"]
            assert Path(name).name in verdict.bad["snapshots"]


def test_a_flipped_byte_of_an_archive_segment_is_named_and_the_node_starts_without_it(whole: UndamagedFolder) -> None:
    for name in files_of(whole.path, "archive/*.segment"):
        for at in positions((whole.path / name).stat().st_size, counts(7, 200)):
            damaged = whole.copy()
            flip(damaged / name, at)
            verdict = whole.check_damaged(damaged)
            assert verdict.digest == whole.digest
            assert f"segment {Path(name).name} is damaged" in verdict.bad["history"]


@pytest.mark.parametrize("kind", ["journal.db", "tables.db", "snapshots/*", "archive/*.segment"])
def test_a_file_cut_short_is_found(whole: UndamagedFolder, kind: str) -> None:
    for name in files_of(whole.path, kind):
        size = (whole.path / name).stat().st_size
        for length in positions(size, counts(12, 100)):
            damaged = whole.copy()
            with (damaged / name).open("r+b") as file:
                file.truncate(length)
            verdict = whole.check_damaged(damaged)
            assert verdict.bad, f"{length} of {size} bytes"


@pytest.mark.parametrize("kind", ["journal.db", "tables.db", "snapshots/*", "archive/*.segment", "owner.lock"])
def test_a_file_that_is_gone_is_found_where_it_matters(whole: UndamagedFolder, kind: str) -> None:
    for name in files_of(whole.path, kind):
        damaged = whole.copy()
        (damaged / name).unlink()
        verdict = folders.run_check_and_start(damaged)
        assert (verdict.digest, kind) in ((whole.digest, kind), (None, "journal.db"))
        if kind in ("journal.db", "tables.db"):
            assert verdict.bad
        if kind == "archive/*.segment":  # the oldest one may have been deleted by an operator: that is told, not blamed
            said = next(found.message for found in verdict.findings if found.name == "history")
            assert "were deleted" in said if name == files_of(whole.path, kind)[0] else verdict.bad


def test_files_that_were_exchanged_are_found_and_left_alone(whole: UndamagedFolder) -> None:
    segments, snapshots = files_of(whole.path, "archive/*.segment"), files_of(whole.path, "snapshots/*")
    pairs = [("journal.db", "tables.db"), (snapshots[0], snapshots[1]), (segments[0], segments[2])]
    pairs += [("journal.db", snapshots[0]), ("tables.db", segments[1])]
    for one, two in pairs:
        damaged = whole.copy()
        raw_one, raw_two = (damaged / one).read_bytes(), (damaged / two).read_bytes()
        (damaged / one).write_bytes(raw_two)
        (damaged / two).write_bytes(raw_one)
        verdict = whole.check_damaged(damaged)
        assert verdict.bad
        assert (verdict.digest is None) == (one in ("journal.db", "tables.db")), (one, two)
        (damaged / one).write_bytes(raw_one)
        (damaged / two).write_bytes(raw_two)
        assert folders.run_check_and_start(damaged).digest == whole.digest, "restored, all is well again"


def test_the_journal_of_another_node_is_not_mixed_with_our_tables(whole: UndamagedFolder, tmp_path: Path) -> None:
    async def another() -> None:
        engine = engine_on(tmp_path / "other")
        await engine.start()
        await stop_engine(engine)

    asyncio.run(another())
    damaged = whole.copy()
    shutil.copy(tmp_path / "other" / "journal.db", damaged / "journal.db")
    verdict = asyncio.run(check_and_start(damaged))
    assert verdict.digest is None
    assert "the journal ends at batch 1, the archive at batch 20" in verdict.fault


def test_tables_damaged_in_any_way_are_brought_back_by_a_rebuild(whole: UndamagedFolder) -> None:
    size = (whole.path / "tables.db").stat().st_size
    for at in [0, 20, 50, 105, *positions(size, counts(12, 100))]:
        damaged = whole.copy()
        flip(damaged / "tables.db", at)
        asyncio.run(rebuilt(damaged))
        verdict = whole.check_damaged(damaged)
        assert (verdict.digest, verdict.bad) == (whole.digest, {})


async def rebuilt(path: Path) -> None:
    journal, tables = journal_of(path), SqliteTables(path)
    try:
        assert isinstance(await rebuild(journal, tables, AtomicFolder(path / "snapshots"), DEVELOPMENT), JournalHead)
    finally:
        await tables.close()
        await journal.close()


# ------------------------------------------------------------------------------------------------ a killed node's log


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Digest]]]:
    """A folder as kill -9 leaves it, the newest batches only in the log; and the state after each batch."""
    place, digests = tmp_path_factory.mktemp("killed"), list[Digest]()

    async def live() -> None:
        engine = engine_on(place / "live")
        await engine.start()
        for number in range(1, 30):
            await engine.submit(Mint(some_id(number), folders.ALICE, Amount(1)))
            digests.append(digest(engine.undurable_state))
        shutil.copytree(place / "live", place / "data", ignore=shutil.ignore_patterns("*-shm", "tables.db*"))
        await stop_engine(engine)

    asyncio.run(live())
    yield place / "data", digests
    shutil.rmtree(place)


def commits_of(log: Path) -> list[int]:
    """Where each transaction ends. Behind the last one is space that was written for the next."""
    raw = log.read_bytes()
    frames = range(32, len(raw) - 4_096, 24 + 4_096)
    return [at + 24 + 4_096 for at in frames if raw[at + 4 : at + 8] != bytes(4)]


def test_a_flipped_byte_of_the_log_never_makes_synced_batches_vanish(killed: tuple[Path, list[Digest]]) -> None:
    data, digests = killed
    *_, last, end = commits_of(data / "journal.db-wal")
    """Between them lies the last transaction: damaged, it cannot be told from one that a crash has cut."""
    assert folders.run_check_and_start(copy_folder(data, data.parent / "copy")).digest == digests[-1]
    for at in [*range(0, 32, counts(5, 1)), *positions(end, counts(60, 600))]:
        damaged = copy_folder(data, data.parent / "copy")
        flip(damaged / "journal.db-wal", at)
        verdict = folders.run_check_and_start(damaged)
        if at >= last:
            assert verdict.digest in digests[-2:], f"byte {at}"
        elif verdict.digest is None:
            assert "journal.db-wal is damaged" in verdict.fault
            assert "journal.db-wal is damaged" in verdict.bad["journal file"]
            assert folders.run_check_and_start(damaged).digest is None, "nor is it forgotten at the next start"
        else:
            assert verdict.digest == digests[-1], f"byte {at}"
            assert at < 32, "only a few bytes of the header mean nothing"


def test_a_log_that_a_crash_cut_in_its_last_transaction_is_no_damage(killed: tuple[Path, list[Digest]]) -> None:
    data, digests = killed
    end, size = commits_of(data / "journal.db-wal")[-1], (data / "journal.db-wal").stat().st_size
    for number, length in enumerate(range(end - 1, end - 4_096, -counts(700, 37))):
        cut = copy_folder(data, data.parent / "copy")
        with (cut / "journal.db-wal").open("r+b") as file:
            file.truncate(length)
            if number % 2:
                file.truncate(size)  # the rest is zeros, as it was before the transaction
        assert folders.run_check_and_start(cut).digest == digests[-2]
