"""The space of the journal's write-ahead log is written before its frames need it."""

from __future__ import annotations

import asyncio
import os
from errno import ENOSPC
from pathlib import Path

import apsw
import pytest

from holdfast.adapters.sqlite.connect import WAL_PAGES, connect
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.wal import check_wal
from holdfast.adapters.sqlite.wal_space import CHUNK, WalSpace
from holdfast.core.base.event import JournalHead, head_of, seal_batch
from holdfast.core.base.values import Term


class WatchedFile:
    """A database whose log is kept ahead of its frames."""

    def __init__(self, folder: Path) -> None:
        self.path, self.log = folder / "rows.db", folder / "rows.db-wal"
        self.db = connect(self.path, "FULL")
        self.db.execute("CREATE TABLE row (raw BLOB)")
        WalSpace(self.path).watch(self.db)

    def add(self, size: int = 100) -> None:
        self.db.execute("INSERT INTO row VALUES (zeroblob(?))", (size,))

    def count(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM row").get)

    def frames(self) -> int:
        return self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]


def test_commits_do_not_make_the_log_longer(tmp_path: Path) -> None:
    file = WatchedFile(tmp_path)
    file.add()
    size = file.log.stat().st_size
    assert size >= CHUNK
    for _ in range(50):
        file.add()
    assert file.log.stat().st_size == size


def test_the_next_chunk_is_there_before_the_last_one_is_full(tmp_path: Path) -> None:
    file = WatchedFile(tmp_path)
    file.add()
    size = file.log.stat().st_size
    while file.frames() < 3 * CHUNK // 4096:
        file.add()
        assert (file.log.stat().st_size - size) % CHUNK == 0  # by chunks alone, not by frames


def test_after_a_large_commit_no_space_is_written_for_nothing(tmp_path: Path) -> None:
    file = WatchedFile(tmp_path)
    file.add(2 * CHUNK)
    assert file.log.stat().st_size < 2 * CHUNK + CHUNK // 4
    file.add()
    assert file.log.stat().st_size > 3 * CHUNK


@pytest.mark.rule("ENG-003")
def test_what_is_behind_the_last_frame_is_no_damage_and_hides_none(tmp_path: Path) -> None:
    file = WatchedFile(tmp_path)
    for _ in range(5):
        file.add()
    check_wal(file.path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for each in (file.path, file.log):  # as a power cut leaves them
        (copy / each.name).write_bytes(each.read_bytes())
    check_wal(copy / file.path.name)
    reopened = connect(copy / file.path.name, "FULL")
    assert reopened.execute("SELECT count(*) FROM row").get == 5


def test_frames_of_another_process_are_not_overwritten(tmp_path: Path) -> None:
    file = WatchedFile(tmp_path)
    file.add()
    other = connect(file.path, "FULL")
    other.execute("INSERT INTO row VALUES (zeroblob(?))", (2 * CHUNK,))  # beyond all that was prepared
    for _ in range(2):
        file.add()
    assert file.log.stat().st_size > 3 * CHUNK
    check_wal(file.path)
    assert file.count() == 4


def test_a_full_disk_fails_no_commit_that_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(_descriptor: int, _raw: bytes) -> int:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    file = WatchedFile(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", is_full)
        file.add()
    assert file.count() == 1
    assert file.log.stat().st_size < CHUNK
    file.add()
    assert file.log.stat().st_size >= CHUNK


def test_a_long_log_is_copied_and_used_from_its_beginning_again(tmp_path: Path) -> None:
    file = WatchedFile(tmp_path)
    while file.frames() < WAL_PAGES:
        file.add(200_000)
    file.add()
    assert file.frames() < 10
    size = file.log.stat().st_size
    file.add()
    assert file.log.stat().st_size == size


@pytest.mark.rule("ENG-002")
def test_the_journals_log_is_prepared_from_its_first_batch_on(tmp_path: Path) -> None:
    async def append() -> None:
        journal = SqliteJournal(tmp_path)
        await journal.acquire()
        batch = seal_batch(JournalHead(), Term(1), 1, 0, b"\x90")
        await journal.append(batch, ())
        assert (tmp_path / "journal.db-wal").stat().st_size >= CHUNK
        assert await journal.tip() == head_of(batch)
        await journal.close()

    asyncio.run(append())
