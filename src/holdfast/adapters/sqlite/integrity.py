"""Checks that a SQLite file holds what was written: integrity check, WAL, schema, and the types of values read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.adapters.sql.named_queries import migrations
from holdfast.adapters.sqlite.connect import connect_to_read, is_initialized, migrate, version_of
from holdfast.adapters.sqlite.connection_thread import ConnectionThread
from holdfast.adapters.sqlite.wal import check_wal
from holdfast.core.base.errors import Corrupt, Unavailable

FAULTS_MAX: Final = 20


async def find_damage(path: Path, schema: str, if_damaged: str, *, has_writer: bool) -> list[str]:
    """The damage SQLite finds in a file, read by a thread of its own; the WAL is checked only if there is no writer."""
    worker = ConnectionThread("integrity-check", path, if_damaged)
    try:
        return await worker.run(lambda: _find_damage(path, schema, has_writer=has_writer))
    except (Corrupt, Unavailable) as fault:
        return [fault.message]
    finally:
        await worker.close()


def _find_damage(path: Path, schema: str, *, has_writer: bool) -> list[str]:
    if not has_writer:
        check_wal(path)
    db = connect_to_read(path)
    try:
        is_initialized(db, schema)  # data of another format have other faults
        lines = [line for (line,) in db.execute(f"PRAGMA integrity_check({FAULTS_MAX})") if line != "ok"]
        if path.stat().st_size % int(str(db.pragma("page_size"))):
            lines.append("it ends within a page")  # SQLite reads zeros in place of what is missing
        if _schema(db) != _schema(_new_database(schema, version_of(db, schema))):
            lines.append("its schema is not the one it was created with")
    finally:
        db.close()
    return [f"{path}: {line}" for line in lines]


def _schema(db: apsw.Connection) -> set[tuple[Any, ...]]:
    return set(db.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))


def _new_database(schema: str, version: int) -> apsw.Connection:
    """A new database of this schema, to compare with."""
    db = apsw.Connection(":memory:")
    migrate(db, schema, migrations(schema)[:version])
    return db


def check_row_types(kinds: tuple[type, ...], row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row, if its values have the types they were stored with: a flipped bit can turn a text into a number."""
    if tuple(map(type, row)) != kinds or any(type(value) is int and value < 0 for value in row):
        raise apsw.CorruptError(f"a row holds values that were never stored: {row!r:.80}")
    return row
