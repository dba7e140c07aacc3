"""Whether a SQLite file is what was written: its own integrity check, its log, and the type of every value we read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.adapters.sql.statements import migrations
from holdfast.adapters.sqlite.connect import connect_to_read, migrate, version_of
from holdfast.adapters.sqlite.wal import check_log
from holdfast.adapters.sqlite.worker import Worker
from holdfast.core.refusal import Corrupt, Unavailable

FAULTS_MAX: Final = 20


async def examine(path: Path, schema: str, if_damaged: str, *, has_writer: bool) -> list[str]:
    """What SQLite finds wrong with a file, read by a thread of its own; the log only while nobody writes to it."""
    worker = Worker("examiner", path, if_damaged)
    try:
        return await worker.do(lambda: _examine(path, schema, has_writer=has_writer))
    except (Corrupt, Unavailable) as fault:
        return [fault.says]
    finally:
        await worker.close()


def _examine(path: Path, schema: str, *, has_writer: bool) -> list[str]:
    if not has_writer:
        check_log(path)
    db = connect_to_read(path)
    try:
        lines = [line for (line,) in db.execute(f"PRAGMA integrity_check({FAULTS_MAX})") if line != "ok"]
        if _schema(db) != _schema(_made(schema, version_of(db, schema))):
            lines.append("its schema is not the one it was made with")
    finally:
        db.close()
    return [f"{path}: {line}" for line in lines]


def _schema(db: apsw.Connection) -> set[tuple[Any, ...]]:
    return set(db.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))


def _made(schema: str, version: int) -> apsw.Connection:
    """A new database of this schema, to compare with."""
    db = apsw.Connection(":memory:")
    migrate(db, schema, migrations(schema)[:version])
    return db


def as_stored(kinds: tuple[type, ...], row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row, if its values have the types they were stored with: a flipped bit can make a number of a text."""
    if tuple(map(type, row)) != kinds or any(type(value) is int and value < 0 for value in row):
        raise apsw.CorruptError(f"a row holds values that were never stored: {row!r:.80}")
    return row
