"""What only SQLite can get wrong: schemas, locks, permissions, durability settings."""

from __future__ import annotations

import stat
from pathlib import Path

import apsw
import pytest

from holdfast.adapters.sql.statements import migrations, queries
from holdfast.adapters.sqlite.connect import connect, migrate
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.core.refusal import Corrupt, Unavailable

ONE, TWO = "CREATE TABLE one (x);", "CREATE TABLE two (x);"
BROKEN = "CREATE TABLE two (x); CREATE TABLE one (x);"


def tables_of(db: apsw.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def version_of(db: apsw.Connection) -> int:
    return db.execute("SELECT number FROM schema_version WHERE name = 'test'").get  # type: ignore[no-any-return]


@pytest.mark.rule("ENG-004")
def test_an_older_schema_is_brought_forward(tmp_path: Path) -> None:
    db = connect(tmp_path / "a.db", "FULL")
    migrate(db, "test", (ONE,))
    migrate(db, "test", (ONE, TWO))
    migrate(db, "test", (ONE, TWO))
    assert tables_of(db) == {"schema_version", "one", "two"}
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
    assert tables_of(db) == {"schema_version", "one"}
    assert version_of(db) == 1
    migrate(db, "test", (ONE, TWO))
    assert version_of(db) == 2


@pytest.mark.rule("ENG-004")
async def test_a_node_refuses_stores_of_a_newer_version(tmp_path: Path) -> None:
    journal, tables = SqliteJournal(tmp_path), SqliteTables(tmp_path)
    await journal.own()
    await tables.open()
    await journal.close()
    await tables.close()
    for name, schema in (("journal.db", "journal"), ("tables.db", "tables")):
        db = connect(tmp_path / name, "FULL")
        db.execute("UPDATE schema_version SET number = 99 WHERE name = ?", (schema,))
        db.close()
    with pytest.raises(Corrupt, match="newer Holdfast"):
        await journal_again(tmp_path)
    tables = SqliteTables(tmp_path)
    with pytest.raises(Corrupt, match="newer Holdfast"):
        await tables.open()
    await tables.close()


async def journal_again(folder: Path) -> None:
    journal = SqliteJournal(folder)
    try:
        await journal.own()
    finally:
        await journal.close()


@pytest.mark.rule("ENG-002")
async def test_the_journal_syncs_every_commit_and_the_tables_do_not(tmp_path: Path) -> None:
    journal, tables = SqliteJournal(tmp_path), SqliteTables(tmp_path)
    await journal.own()
    await tables.open()
    assert journal._to_write is not None
    assert tables._to_write is not None
    assert journal._to_write.execute("PRAGMA synchronous").get == 2  # FULL
    assert journal._to_write.execute("PRAGMA journal_mode").get == "wal"
    assert tables._to_write.execute("PRAGMA synchronous").get == 1  # NORMAL
    await journal.close()
    await tables.close()


@pytest.mark.rule("SEC-001")
async def test_the_files_are_their_users_alone(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    await journal.own()
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


def test_every_query_has_a_name_and_a_sentence() -> None:
    for file in ("journal", "tables", "postgres_journal", "postgres_tables"):
        for name, text in queries(file).items():
            first = text.splitlines()[0]
            assert (first[:3], first[-1]) == ("-- ", "."), f"{file}.{name}: {first}"
    assert len(migrations("journal")) >= 1
