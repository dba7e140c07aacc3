"""Writes many rows at once: new ones by COPY, others through a temporary table; claims as sorted runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Final

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.sql.claim_rows import ClaimPage, pack_claims
from holdfast.adapters.sql.named_queries import postgres_queries
from holdfast.adapters.sql.sorted_runs import SortedRun, make_run, merge_pages, runs_over, runs_to_merge
from holdfast.adapters.sql.table_schema import (
    COLUMNS,
    delete_statement,
    insert_clause,
    is_gapless,
    split_rows,
    upsert_clause,
)
from holdfast.core.base.event import JournalHead
from holdfast.core.index.unique_ids import Claim
from holdfast.ports import Row

_SQL: Final = postgres_queries("tables")
_ROWS_PER_COPY: Final = 2_048
"""Rows encoded without a pause: the event loop has other work to do."""
_FEW: Final = 64
"""As many rows go as values of a statement: a temporary table takes three round trips more."""


async def put_rows(connection: Connection, table: str, rows: Sequence[Row], after: JournalHead | None) -> None:
    """Add and replace rows by their first column, delete those marked deleted."""
    new, known, deleted = split_rows(table, rows, after)
    if is_gapless(table, known):
        await connection.execute(delete_statement(table, "BETWEEN $1 AND $2"), known[0][0], known[-1][0])
        new, known = known, []
    if new:
        await _copy(connection, table, new, COLUMNS[table])
    if known:
        await (_upsert if len(known) > _FEW else _upsert_few)(connection, table, known)
    for start in range(0, len(deleted), _ROWS_PER_COPY):
        keys = [key for (key,) in deleted[start : start + _ROWS_PER_COPY]]
        await connection.execute(delete_statement(table, "= ANY ($1)"), keys)


async def _upsert(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    incoming = f"incoming_{table}"
    await connection.execute(f"CREATE TEMPORARY TABLE IF NOT EXISTS {incoming} (LIKE {table}) ON COMMIT DELETE ROWS")
    await _copy(connection, incoming, rows, COLUMNS[table])
    await connection.execute(_upsert_sql(table, incoming))


async def _upsert_few(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    values = ", ".join(f"${number}" for number in range(1, len(COLUMNS[table]) + 1))
    await connection.executemany(f"{insert_clause(table)} VALUES ({values}) {upsert_clause(table)}", rows)


@cache
def _upsert_sql(table: str, incoming: str) -> str:
    columns = ", ".join(COLUMNS[table])
    return f"{insert_clause(table)} SELECT {columns} FROM {incoming} {upsert_clause(table)}"  # noqa: S608 - our own names


async def add_claims(connection: Connection, claims: Sequence[tuple[bytes, Claim]], now_ms: int) -> None:
    """Write sorted runs; merge runs of about one size when there are too many, delete those that are over."""
    runs = await list_sorted_runs(connection)
    for records in pack_claims(claims):
        runs += await _add_run(connection, runs, *make_run(records, now_ms))
    if over := runs_over(runs, now_ms):
        runs = await _delete_runs(connection, runs, over)
    while alike := runs_to_merge(sorted(runs, key=itemgetter(1, 0))):
        pages = [page for (page,) in await connection.fetch(_SQL["run_pages"], alike)]
        runs += await _add_run(connection, runs, *merge_pages(pages, now_ms))
        runs = await _delete_runs(connection, runs, alike)


async def _add_run(
    connection: Connection, runs: Sequence[SortedRun], pages: Sequence[ClaimPage], size: int, until_ms: int
) -> list[SortedRun]:
    """The new run, with a number that no other has; none where it would be empty."""
    if not size:
        return []
    number = max((run for run, *_ in runs), default=0) + 1
    await _copy(connection, "claim_page", [(number, *page) for page in pages])
    await connection.execute(_SQL["add_run"], number, size, until_ms)
    return [(number, size, until_ms)]


async def _delete_runs(connection: Connection, runs: Sequence[SortedRun], ended: Sequence[int]) -> list[SortedRun]:
    """The runs that are left."""
    await connection.execute(_SQL["delete_run_pages"], ended)
    await connection.execute(_SQL["delete_run"], ended)
    return [run for run in runs if run[0] not in ended]


async def list_sorted_runs(connection: Connection) -> list[SortedRun]:
    return [tuple(row) for row in await connection.fetch(_SQL["list_runs"])]


async def _copy(connection: Connection, table: str, rows: Sequence[Row], columns: Sequence[str] | None = None) -> None:
    for start in range(0, len(rows), _ROWS_PER_COPY):
        await connection.copy_records_to_table(table, records=rows[start : start + _ROWS_PER_COPY], columns=columns)
