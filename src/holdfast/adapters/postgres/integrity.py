"""Reads all tables at one moment, and the damage that the server knows of: for checks and exports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.sql.claim_rows import dump_row
from holdfast.adapters.sql.journal_rows import head_from_row
from holdfast.adapters.sql.named_queries import postgres_queries
from holdfast.adapters.sql.table_schema import KEYS
from holdfast.ports import CLAIMS, Chunk

_SQL: Final = postgres_queries("tables")
_CHUNK: Final = 5_000
_READS: Final = {table: f"SELECT * FROM {table} ORDER BY {key}" for table, key in KEYS.items()} | {  # noqa: S608
    CLAIMS: _SQL["claims"]
}
_DAMAGE_QUERY: Final = """
SELECT format('index %s is not valid', index.indexrelid::regclass) FROM pg_index AS index
JOIN pg_class AS table_ ON table_.oid = index.indrelid
WHERE table_.relnamespace = to_regnamespace($1) AND NOT (index.indisvalid AND index.indisready)
UNION ALL
SELECT format('the server has found %s pages of this database damaged', checksum_failures) FROM pg_stat_database
WHERE datname = current_database() AND checksum_failures > 0
"""


async def dump(connection: Connection) -> AsyncIterator[Chunk]:
    """Every row and claim at one moment: the snapshot stays open while it is read."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        checkpoint = head_from_row(await connection.fetchrow(_SQL["checkpoint"]))
        yield checkpoint, CLAIMS, []
        for table, sql in _READS.items():
            cursor = await connection.cursor(sql)
            while rows := await cursor.fetch(_CHUNK):
                yield checkpoint, table, [dump_row(row) if table == CLAIMS else tuple(row) for row in rows]


async def find_damage(connection: Connection, schema: str) -> list[str]:
    """Damage that the server has already noticed; no page is read for this."""
    return [text for (text,) in await connection.fetch(_DAMAGE_QUERY, schema)]
