"""Writes many rows at once: COPY into a temporary table, then an upsert from there; claims as sorted runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.sql.claim_rows import sorted_rows
from holdfast.adapters.sql.named_queries import postgres_queries
from holdfast.adapters.sql.sorted_runs import SortedRun, runs_to_merge
from holdfast.adapters.sql.table_schema import KEYS, upsert_clause
from holdfast.core.index.unique_ids import Claim
from holdfast.ports import Row, is_row_deleted

_SQL: Final = postgres_queries("tables")
_ROWS_PER_COPY: Final = 2_048
"""Rows encoded without a pause: the event loop has other work to do."""


async def put_rows(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    """Replace rows by their first column, delete those marked deleted; of two with one key the later counts."""
    latest = {row[0]: row for row in rows}.values()
    if stored := [row for row in latest if not is_row_deleted(row)]:
        incoming = f"incoming_{table}"
        await connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {incoming} (LIKE {table}) ON COMMIT DELETE ROWS"
        )
        await _copy(connection, incoming, stored)
        await connection.execute(f"INSERT INTO {table} SELECT * FROM {incoming} {upsert_clause(table)}")  # noqa: S608
    deleted = [row[0] for row in latest if is_row_deleted(row)]
    for start in range(0, len(deleted), _ROWS_PER_COPY):
        keys = deleted[start : start + _ROWS_PER_COPY]
        await connection.execute(f"DELETE FROM {table} WHERE {KEYS[table]} = ANY ($1)", keys)  # noqa: S608 - our own names


async def add_sorted_run(connection: Connection, claims: Sequence[tuple[bytes, Claim]]) -> None:
    """Write one sorted run; merge runs of about one size when there are too many of them."""
    number: int = await connection.fetchval(_SQL["next_run"])
    await _copy(connection, "claim", [(number, *row) for row in sorted_rows(claims)])
    await connection.execute(_SQL["add_run"], number, len(claims))
    while alike := runs_to_merge(await list_sorted_runs(connection)):
        number += 1
        merged = [run for run, _ in alike]
        await connection.execute(_SQL["merge_runs"], number, merged)
        await connection.execute(_SQL["add_run"], number, sum(size for _, size in alike))
        await connection.execute(_SQL["delete_run_claims"], merged)
        await connection.execute(_SQL["delete_run"], merged)


async def list_sorted_runs(connection: Connection) -> list[SortedRun]:
    return [(number, size) for number, size in await connection.fetch(_SQL["list_runs"])]


async def _copy(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    for start in range(0, len(rows), _ROWS_PER_COPY):
        await connection.copy_records_to_table(table, records=rows[start : start + _ROWS_PER_COPY])
