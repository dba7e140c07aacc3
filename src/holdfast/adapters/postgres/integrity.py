"""Reads all tables at one moment, and the damage that the server knows of: for checks and exports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.sql.claim_rows import split_pages, unpack_record, until_of
from holdfast.adapters.sql.journal_rows import head_from_row
from holdfast.adapters.sql.named_queries import postgres_queries
from holdfast.adapters.sql.table_schema import KEYS, SELECT
from holdfast.ports import CLAIMS, Chunk, Row

_SQL: Final = postgres_queries("tables")
_CHUNK: Final = 5_000
_READS: Final = {table: f"{SELECT[table]} ORDER BY {key}" for table, key in KEYS.items()} | {CLAIMS: _SQL["pages"]}
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
                yield (
                    checkpoint,
                    table,
                    _dumped_claims(rows, checkpoint.time_ms) if table == CLAIMS else list(map(tuple, rows)),
                )


def _dumped_claims(rows: Sequence[Sequence[Any]], now_ms: int) -> list[Row]:
    records = split_pages(page for (page,) in rows)
    return [unpack_record(record) for record in records if not until_of(record) or until_of(record) > now_ms]


async def find_damage(connection: Connection, schema: str) -> list[str]:
    """Damage that the server has already noticed; no page is read for this."""
    return [text for (text,) in await connection.fetch(_DAMAGE_QUERY, schema)]
