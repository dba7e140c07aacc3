"""All of the tables at one moment, and what the server itself knows to be wrong: for who checks and who copies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.sql.shape import KEYS
from holdfast.adapters.sql.statements import postgres_queries
from holdfast.core.event import Tip
from holdfast.ports import CLAIMS, Chunk

_SQL: Final = postgres_queries("tables")
_CHUNK: Final = 5_000
_READS: Final = {table: f"SELECT * FROM {table} ORDER BY {key}" for table, key in KEYS.items()} | {  # noqa: S608
    CLAIMS: _SQL["claims"]
}
_INVALID: Final = """
SELECT format('index %s is not valid', index.indexrelid::regclass) FROM pg_index AS index
JOIN pg_class AS table_ ON table_.oid = index.indrelid
WHERE table_.relnamespace = to_regnamespace($1) AND NOT (index.indisvalid AND index.indisready)
UNION ALL
SELECT format('the server has found %s pages of this database damaged', checksum_failures) FROM pg_stat_database
WHERE datname = current_database() AND checksum_failures > 0
"""


async def dump(connection: Connection) -> AsyncIterator[Chunk]:
    """Every row and claim of one moment: the snapshot is held while it is read."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        row = await connection.fetchrow(_SQL["checkpoint"])
        tip = Tip(*row) if row else Tip()
        yield tip, CLAIMS, []
        for table, sql in _READS.items():
            cursor = await connection.cursor(sql)
            while rows := await cursor.fetch(_CHUNK):
                yield tip, table, [tuple(row) for row in rows]


async def faults(connection: Connection, schema: str) -> list[str]:
    """Damage that the server noticed by itself; it reads no page for us."""
    return [text for (text,) in await connection.fetch(_INVALID, schema)]
