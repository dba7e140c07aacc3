"""What only SQLite can get wrong: schemas, locks, permissions, durability settings."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from holdfast.adapters.sql import named_queries
from holdfast.adapters.sql.named_queries import migrations, queries
from holdfast.adapters.sql.sorted_runs import iter_run_keys
from holdfast.adapters.sql.table_schema import COLUMNS
from holdfast.adapters.sqlite import wal
from holdfast.adapters.sqlite.connect import connect, migrate
from holdfast.adapters.sqlite.integrity import check_row_types
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.owner_lock import OwnerLock
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import Batch, JournalHead, OwnershipTaken, head_of
from holdfast.core.base.values import BatchNo, Term

MIGRATIONS = Path(named_queries.__file__).parent / "migrations"

ONE, TWO = "CREATE TABLE one (x);", "CREATE TABLE two (x);"
BROKEN = "CREATE TABLE two (x); CREATE TABLE one (x);"


def tables_of(db: apsw.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def version_of(db: apsw.Connection) -> int:
    return db.execute("SELECT number FROM schema_format WHERE name = 'test'").get  # type: ignore[no-any-return]


@pytest.mark.rule("ENG-004")
def test_an_older_schema_is_brought_forward(tmp_path: Path) -> None:
    db = connect(tmp_path / "a.db", "FULL")
    migrate(db, "test", (ONE,))
    migrate(db, "test", (ONE, TWO))
    migrate(db, "test", (ONE, TWO))
    assert tables_of(db) == {"schema_format", "one", "two"}
    assert version_of(db) == 2


@pytest.mark.rule("ENG-004")
def test_a_newer_schema_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    db = connect(tmp_path / "a.db", "FULL")
    migrate(db, "test", (ONE, TWO))
    with pytest.raises(Corrupt, match=r"has schema 2 of 'test', this program knows 1.*newer Holdfast"):
        migrate(db, "test", (ONE,))


@pytest.mark.rule("ENG-004")
def test_an_interrupted_migration_leaves_nothing_and_resumes(tmp_path: Path) -> None:
    db = connect(tmp_path / "a.db", "FULL")
    with pytest.raises(apsw.SQLError):
        migrate(db, "test", (ONE, BROKEN))  # its first statement succeeds, its second does not
    assert tables_of(db) == {"schema_format", "one"}
    assert version_of(db) == 1
    migrate(db, "test", (ONE, TWO))
    assert version_of(db) == 2


@pytest.mark.rule("ENG-004")
async def test_a_later_migration_of_the_tables_keeps_their_rows(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path)
    await tables.open()
    await tables.write({"account": [("alice", 7, 0, 0)]}, [], JournalHead(BatchNo(1)))
    await tables.close()
    db = connect(tmp_path / "tables.db", "FULL")
    migrate(db, "tables", (*migrations("tables"), "ALTER TABLE account ADD COLUMN note TEXT NOT NULL DEFAULT '-';"))
    assert db.execute("SELECT * FROM account").fetchall() == [("alice", 7, 0, 0, "-")]
    assert db.execute("SELECT number FROM schema_format WHERE name = 'tables'").get == len(migrations("tables")) + 1


def test_the_columns_of_a_table_are_those_of_its_record(tmp_path: Path) -> None:
    db = connect(tmp_path / "tables.db", "FULL")
    migrate(db, "tables")
    for table, columns in COLUMNS.items():
        assert sorted(row[1] for row in db.execute(f"PRAGMA table_info({table})")) == sorted(columns), table


@pytest.mark.rule("ENG-004")
async def test_a_node_refuses_stores_of_a_newer_version(tmp_path: Path) -> None:
    journal, tables = SqliteJournal(tmp_path), SqliteTables(tmp_path)
    await journal.acquire()
    await tables.open()
    await journal.close()
    await tables.close()
    for name, schema in (("journal.db", "journal"), ("tables.db", "tables")):
        db = connect(tmp_path / name, "FULL")
        db.execute("UPDATE schema_format SET number = 99 WHERE name = ?", (schema,))
        db.close()
    with pytest.raises(Corrupt, match="newer Holdfast"):
        await journal_again(tmp_path)
    tables = SqliteTables(tmp_path)
    with pytest.raises(Corrupt, match="newer Holdfast"):
        await tables.open()
    await tables.close()


AS_BEFORE = "CREATE TABLE schema_version (name TEXT PRIMARY KEY, number INTEGER NOT NULL); DROP TABLE schema_format"


@pytest.mark.rule("ENG-003", "ENG-004")
@pytest.mark.parametrize(
    ("change_format", "has"), [("UPDATE schema_format SET format = 2", "format 2"), (AS_BEFORE, "no format number")]
)
async def test_data_of_another_format_are_refused_before_anything_else_of_them_is_read(
    tmp_path: Path, change_format: str, has: str
) -> None:
    """As those of 0.4 and before, whose columns are others."""
    await small_journal(tmp_path)
    tables = SqliteTables(tmp_path)
    await tables.open()
    await tables.close()
    for name, table in (("journal.db", "batch"), ("tables.db", "checkpoint")):
        db = connect(tmp_path / name, "FULL")
        db.execute(change_format)
        db.execute(f"ALTER TABLE {table} RENAME COLUMN hash TO old_hash")
        db.close()
    before = (tmp_path / "journal.db").read_bytes()
    journal, tables = SqliteJournal(tmp_path), SqliteTables(tmp_path)
    for use in (journal.acquire, journal.tip, tables.open, tables.checkpoint):
        with pytest.raises(Corrupt, match=f"written by another version of Holdfast: it has {has}") as refused:
            await use()
        assert "empty folder" in refused.value.hint
    for store in (journal, tables):
        assert [fault for fault in await store.faults() if "another version of Holdfast" in fault]
    await journal.close()
    await tables.drop()  # tables of another format are replaced by a rebuild
    assert await tables.open() == JournalHead()
    await tables.close()
    assert (tmp_path / "journal.db").read_bytes() == before


async def journal_again(folder: Path) -> None:
    journal = SqliteJournal(folder)
    try:
        await journal.acquire()
    finally:
        await journal.close()


@pytest.mark.rule("ENG-002")
async def test_the_journal_syncs_every_commit_and_the_tables_do_not(tmp_path: Path) -> None:
    journal, tables = SqliteJournal(tmp_path), SqliteTables(tmp_path)
    await journal.acquire()
    await tables.open()
    assert journal._write_db is not None
    assert tables._write_db is not None
    assert journal._write_db.execute("PRAGMA synchronous").get == 2  # FULL
    assert journal._write_db.execute("PRAGMA journal_mode").get == "wal"
    assert tables._write_db.execute("PRAGMA synchronous").get == 1  # NORMAL
    await journal.close()
    await tables.close()


@pytest.mark.rule("SEC-001")
async def test_the_files_are_their_users_alone(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    await journal.acquire()
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    await journal.close()


@pytest.mark.rule("ENG-003")
async def test_a_file_that_is_no_database_is_corrupt_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"this is not a database, it is a letter" * 100)
    with pytest.raises(Corrupt, match="damaged"):
        await journal_again(tmp_path)
    assert (tmp_path / "journal.db").read_bytes().startswith(b"this is not a database")


@pytest.mark.rule("ENG-001")
async def test_reading_a_journal_that_is_not_there_says_so_and_makes_nothing(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    with pytest.raises(Unavailable, match="no journal at"):
        await journal.tip()
    await journal.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("ENG-006")
async def test_stores_that_an_owner_is_just_making_are_not_taken_for_damaged(tmp_path: Path) -> None:
    """Two nodes started at once: the standby looks between the owner's lock and its first migration."""
    lock = OwnerLock(tmp_path / "owner.lock")
    lock.acquire()
    for name in ("journal.db", "tables.db"):
        connect(tmp_path / name, "FULL").close()
    journal, tables = SqliteJournal(tmp_path), SqliteTables(tmp_path)
    with pytest.raises(Unavailable, match="is being created"):
        await journal.tip()
    with pytest.raises(Unavailable, match="no tables"):
        await tables.checkpoint()
    for name in ("journal", "tables"):
        migrate(connect(tmp_path / f"{name}.db", "FULL"), name)
    assert (await journal.tip(), await tables.checkpoint()) == (JournalHead(), JournalHead())
    await journal.close()
    await tables.close()
    lock.release()


@pytest.mark.rule("ENG-002")
async def test_a_lock_on_a_full_disk_is_a_lock_and_what_the_system_says_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        journal = SqliteJournal(tmp_path)
        assert await journal.acquire() == JournalHead()
        assert not OwnerLock(tmp_path / "owner.lock").is_free()
        await journal.close()
    (tmp_path / "other" / "owner.lock").mkdir(parents=True)
    barred = SqliteJournal(tmp_path / "other")
    with pytest.raises(Unavailable, match=r"owner\.lock: Is a directory"):
        await barred.acquire()
    await barred.close()


def test_every_query_has_a_name_and_a_sentence() -> None:
    for file in ("journal", "tables", "postgres_journal", "postgres_tables"):
        for name, text in queries(file).items():
            first = text.splitlines()[0]
            assert (first[:3], first[-1]) == ("-- ", "."), f"{file}.{name}: {first}"


def test_migrations_are_numbered_from_1_without_gaps_in_every_schema_and_alike_in_both_stores() -> None:
    folders = {folder.name: folder for folder in MIGRATIONS.iterdir() if folder.is_dir()}
    names = {schema: sorted(file.name for file in folder.iterdir()) for schema, folder in folders.items()}
    assert len(names) >= 4
    for schema, files in names.items():
        numbered = [re.fullmatch(r"(\d{4})_[a-z0-9_]+\.sql", file) for file in files]
        numbers = [int(match[1]) if match else 0 for match in numbered]
        assert numbers == list(range(1, len(files) + 1)), f"{schema}: {files}"
        assert names.get(f"postgres_{schema}", files) == files, schema


# ------------------------------------------------------------------------------------------------ damage, byte by byte


async def small_journal(folder: Path) -> list[Batch]:
    """Five batches, in one page of their table."""
    journal, made, tip = SqliteJournal(folder), [], JournalHead()
    await journal.acquire()
    for _ in range(5):
        made.append(journal_codec.pack(tip, Term(1), [OwnershipTaken(Term(1), "node")], tip.time_ms))
        await journal.append(made[-1], ())
        tip = head_of(made[-1])
    await journal.close()
    return made


def page_of(path: Path, name: str) -> int:
    """Where the root page of a table or index begins."""
    db = connect(path, "FULL")
    page = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).get
    db.close()
    return (int(page) - 1) * 4_096


def change(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


@pytest.mark.rule("ENG-003")
async def test_a_journal_whose_last_rows_vanished_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    await small_journal(tmp_path)
    path = tmp_path / "journal.db"
    change(path, page_of(path, "batch") + 3, (3).to_bytes(2, "big"))  # the page says that it has three rows
    with pytest.raises(Corrupt, match="its last batches cannot be found"):
        await journal_again(tmp_path)


@pytest.mark.rule("ENG-003")
async def test_a_log_that_begins_anew_while_it_is_looked_at_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by an operator who archives while a node starts: his commit finds the log full and begins another one."""
    await small_journal(tmp_path)
    path, count = tmp_path / "journal.db", wal._valid_frame_count
    beside = connect(path, "FULL")
    for number in range(9):
        beside.execute(f"PRAGMA user_version = {number}")
    assert (tmp_path / "journal.db-wal").stat().st_size > 0

    def begun_anew(database: Path) -> int:
        monkeypatch.setattr(wal, "_valid_frame_count", count)
        beside.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        beside.execute("PRAGMA user_version = 10")
        return count(database)

    monkeypatch.setattr(wal, "_valid_frame_count", begun_anew)
    wal.check_wal(path)
    beside.close()


async def test_damage_that_no_reading_meets_is_found_by_examination(tmp_path: Path) -> None:
    made = await small_journal(tmp_path)
    path = tmp_path / "journal.db"
    at, raw = page_of(path, "batch_by_event"), path.read_bytes()
    cell = at + int.from_bytes(raw[at + 8 : at + 10], "big")
    change(path, cell + 3, b"\x63")  # the index says that event 99 is in the first batch
    journal = SqliteJournal(tmp_path)
    assert [batch async for batch in journal.read(BatchNo(0))] == made
    assert any("batch_by_event" in fault for fault in await journal.faults())
    await journal.close()


@pytest.mark.rule("ENG-003")
async def test_a_schema_that_is_not_as_it_was_made_is_found_by_examination(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path)
    await tables.open()
    await tables.close()
    path = tmp_path / "tables.db"
    for found in re.finditer(rb"CHECK \(one = 1\)", path.read_bytes()):  # a page that was split leaves an old copy
        change(path, found.start() + 13, b"2")
    tables = SqliteTables(tmp_path)
    assert [fault for fault in await tables.faults() if "schema is not the one" in fault]
    await tables.close()


@pytest.mark.rule("ENG-003")
@pytest.mark.parametrize("row", [(1, None), (1, "x"), (b"1", b"x"), (-1, b"x"), (1, b"x", b"y"), (1.0, b"x")])
def test_values_that_were_never_stored_are_not_read(row: tuple[object, ...]) -> None:
    assert check_row_types((int, bytes), (1, b"x")) == (1, b"x")
    with pytest.raises(apsw.CorruptError):
        check_row_types((int, bytes), row)


@pytest.mark.rule("ENG-003")
async def test_a_schema_is_put_neither_into_the_file_of_another_nor_into_one_that_lost_its_own(tmp_path: Path) -> None:
    await small_journal(tmp_path)
    (tmp_path / "journal.db").rename(tmp_path / "tables.db")
    before = (tmp_path / "tables.db").read_bytes()
    tables = SqliteTables(tmp_path)
    with pytest.raises(Corrupt, match="is not the 'tables' it should be"):
        await tables.open()
    await tables.close()
    assert (tmp_path / "tables.db").read_bytes() == before
    change(tmp_path / "tables.db", 100 + 3, bytes(2))  # the first page says that there are no tables at all
    tables = SqliteTables(tmp_path)
    with pytest.raises(Corrupt, match=r"tables\.db"):
        await tables.open()
    await tables.close()


@pytest.mark.rule("ENG-005")
async def test_ids_out_of_order_are_not_walked_in_circles() -> None:
    async def list_runs() -> list[tuple[int, int, int]]:
        return [(1, 2, 0)]

    async def pages(run: int, after: bytes) -> list[bytes]:
        return [bytes([2] * 40), bytes([1] * 40)]

    with pytest.raises(Corrupt, match="the ids of run 1 are out of order"):
        _ = [chunk async for chunk in iter_run_keys(list_runs, pages)]


CAN_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    try:
        fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)  # the byte that says: somebody is here
    except BlockingIOError:
        sys.exit(1)
"""


@pytest.mark.rule("ENG-006")
async def test_looking_at_the_log_does_not_give_up_the_locks_that_other_processes_rely_on(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    await journal.acquire()
    batch = journal_codec.pack(JournalHead(), Term(1), [], 1)
    await journal.append(batch, ())
    assert await journal.tip() == head_of(batch)  # a reader stays open
    await journal.acquire()  # anew: the log, which is not empty, is looked at
    probe = [sys.executable, "-c", CAN_LOCK, str(tmp_path / "journal.db-shm")]
    held = await asyncio.to_thread(subprocess.run, probe, check=False)
    assert held.returncode == 1, "another process may empty the log's index under our feet"
    await journal.close()
