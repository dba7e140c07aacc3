"""Opens a SQLite file with the project's settings, and brings its schema up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import apsw

from holdfast.adapters.sql.named_queries import FORMAT, OLD_VERSIONS, check_format, check_version, migrations
from holdfast.core.base.errors import Corrupt

BUSY_MS = 5_000
WAL_PAGES = 4_000
"""16 MiB of WAL before it is copied into the file: few commits pay for the copy."""


def connect(path: Path, synchronous: Literal["FULL", "NORMAL"]) -> apsw.Connection:
    """A connection in WAL mode for one thread; only the file's user can read it."""
    if not path.exists():
        path.touch(mode=0o600)
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    return connection


def connect_to_read(path: Path) -> apsw.Connection:
    """A connection that cannot write."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_MS)
    return connection


def migrate(connection: apsw.Connection, schema: str, steps: tuple[str, ...] | None = None) -> None:
    """Apply the missing migrations, each in a transaction with its number: one that is interrupted starts again."""
    steps = migrations(schema) if steps is None else steps
    _check_kind(connection, schema)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_format"
        " (name TEXT PRIMARY KEY, format INTEGER NOT NULL, number INTEGER NOT NULL) STRICT"
    )
    have = version_of(connection, schema)
    check_version(connection.filename, schema, have, len(steps))
    for number in range(have + 1, len(steps) + 1):
        with connection:
            connection.execute(steps[number - 1])
            connection.execute("INSERT OR REPLACE INTO schema_format VALUES (?, ?, ?)", (schema, FORMAT, number))


def version_of(connection: apsw.Connection, schema: str) -> int:
    """How many migrations of this schema were applied to the file; its format is checked before."""
    format_, have = connection.execute("SELECT format, number FROM schema_format WHERE name = ?", (schema,)).get or (
        FORMAT,
        0,
    )
    for value in (format_, have):
        if type(value) is not int or value < 0:
            raise apsw.CorruptError(f"{value!r:.20} is not a schema version")
    check_format(connection.filename, schema, format_)
    return have


def is_initialized(connection: apsw.Connection, schema: str) -> bool:
    """Whether the first migration was applied: another process may be creating the file."""
    tables = _tables(connection)
    if OLD_VERSIONS in tables:
        check_format(connection.filename, schema, None)
    return "schema_format" in tables and version_of(connection, schema) > 0


def _tables(connection: apsw.Connection) -> set[object]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _check_kind(connection: apsw.Connection, schema: str) -> None:
    """Corrupt if the file holds something else: a schema goes only into a new file or into its own."""
    tables = _tables(connection)
    if OLD_VERSIONS in tables:
        check_format(connection.filename, schema, None)
    if "schema_format" not in tables:
        is_new = not tables and connection.execute("PRAGMA page_count").get <= 1
    else:
        is_new = {name for (name,) in connection.execute("SELECT name FROM schema_format")} <= {schema}
    if not is_new:
        raise Corrupt(
            "ENG-003",
            f"{connection.filename} is damaged or is not the '{schema}' it should be",
            "were two files swapped? swap them back, or restore them from a backup",
        )
