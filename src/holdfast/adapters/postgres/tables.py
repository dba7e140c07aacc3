"""The projection on PostgreSQL: rows, sorted runs of claims and the checkpoint in one transaction; rebuildable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import asyncpg

from holdfast.adapters.postgres.connect import COMMAND_S, CONNECT_S, Connection, Database, ReaderPool, close_connection
from holdfast.adapters.postgres.copy import add_claims, list_sorted_runs, put_rows
from holdfast.adapters.postgres.integrity import dump, find_damage
from holdfast.adapters.postgres.lock import take_lock
from holdfast.adapters.postgres.migrate import check_schema, migrate
from holdfast.adapters.postgres.settings import SCHEMA
from holdfast.adapters.sql.claim_rows import RECORD_BYTES, events_between, find_by_key
from holdfast.adapters.sql.journal_rows import head_from_row, head_values
from holdfast.adapters.sql.named_queries import postgres_queries
from holdfast.adapters.sql.sorted_runs import PAGES_PER_READ, SortedRun, iter_run_keys
from holdfast.adapters.sql.table_schema import FILTERS, KEYS, SELECT, page_statement
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import EventNo
from holdfast.core.index.unique_ids import Claim, claim_id
from holdfast.ports import Chunk, FoundClaims, Row, RowPage

LOCK_WAIT_S: Final = 30.0
"""How long `open` waits for the previous writer: it no longer holds the journal's lock, so it is about to end."""
READERS: Final = 3
_SQL: Final = postgres_queries("tables")
HEAD_COLUMNS: Final = 5
_ALL: Final = (*KEYS, "claim_page", "sorted_run", "checkpoint")


class PostgresTables:
    """ENG-004 on PostgreSQL. A crash of the server may lose the newest rows, and the journal brings them back.

    One session writes, under a lock like that of the journal's owner: a writer that was disconnected or replaced can
    never overwrite newer rows with older ones.
    """

    def __init__(
        self,
        dsn: str,
        schema: str = SCHEMA,
        *,
        connect_s: float = CONNECT_S,
        command_s: float = COMMAND_S,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        self._database = Database(dsn, schema, connect_s=connect_s, command_s=command_s)
        self._lock_wait_s = lock_wait_s
        check = partial(check_schema, database=self._database, name="tables")
        self._readers = ReaderPool(self._database, "tables-reader", READERS, check)
        self._writer: Connection | None = None

    async def open(self) -> JournalHead:
        if self._writer is None or self._writer.is_closed():
            self._writer = await self._open_writer()
        with self._database.translate_errors():
            return await _checkpoint(self._writer)

    async def release(self) -> None:
        if self._writer is not None:
            connection, self._writer = self._writer, None
            await close_connection(connection)

    async def checkpoint(self) -> JournalHead:
        async with self._readers.use() as connection:
            return await _checkpoint(connection)

    async def write(
        self,
        rows: Mapping[str, Sequence[Row]],
        claims: Sequence[tuple[bytes, Claim]],
        checkpoint: JournalHead,
        after: JournalHead | None = None,
    ) -> None:
        await self._write_transaction(lambda connection: _write(connection, rows, claims, checkpoint, after))

    async def drop(self) -> None:
        try:
            await self._write_transaction(_truncate)
        except Corrupt:
            await self._write_transaction(self._recreate)

    async def _recreate(self, connection: Connection) -> None:
        for table in _ALL:
            await connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE")
        await connection.execute("DELETE FROM schema_format WHERE name = 'tables'")
        await migrate(connection, self._database, "tables")

    async def get(self, table: str, key: object) -> tuple[Row | None, EventNo]:
        async with self._readers.use() as connection:
            row = await connection.fetchrow(_get_sql(table), key)
        assert row is not None
        as_of, *columns = row
        return tuple(columns) if columns[0] is not None else None, EventNo(as_of)

    async def page(
        self, table: str, match: Mapping[str, object], after: object, limit: int, *, is_newest_first: bool = False
    ) -> RowPage:
        assert match.keys() <= FILTERS[table], "filters are columns of our own table"
        sql = _page_sql(table, tuple(match), is_newest_first=is_newest_first)
        async with self._readers.use() as connection:
            joined = await connection.fetch(sql, after, limit, *match.values())
        rows: list[Row] = [tuple(row)[1:] for row in joined if row[1] is not None]
        return rows, EventNo(joined[0][0])

    async def find(self, table: str, column: str, values: Sequence[object]) -> list[Row]:
        assert column in FILTERS[table] | {KEYS[table]}, "filters are columns of our own table"
        sql = f"{SELECT[table]} WHERE {column} = ANY ($1)"
        async with self._readers.use() as connection:
            return [tuple(row) for row in await connection.fetch(sql, list(values))]

    def claim_keys(self) -> AsyncIterator[Sequence[int]]:
        return iter_run_keys(self._list_runs, self._pages_after)

    async def _list_runs(self) -> list[SortedRun]:
        async with self._readers.use() as connection:
            return await list_sorted_runs(connection)

    async def _pages_after(self, run: int, after: bytes) -> list[bytes]:
        async with self._readers.use() as connection:
            return [page for (page,) in await connection.fetch(_SQL["pages_after"], run, after, PAGES_PER_READ)]

    async def find_claims(self, keys: Sequence[bytes]) -> FoundClaims:
        async with self._readers.use() as connection:
            joined = await connection.fetch(_SQL["find_claims"], [claim_id(key) for key in keys], RECORD_BYTES)
        records = [row["record"] for row in joined if row["record"] is not None]
        head = tuple(joined[0])[:HEAD_COLUMNS]
        return FoundClaims(find_by_key(keys, records), head_from_row(head if head[0] is not None else None))

    async def find_claim_events(self, low: bytes, high: bytes, limit: int) -> list[EventNo]:
        async with self._readers.use() as connection:
            pages = [page for (page,) in await connection.fetch(_SQL["pages_between"], low, high, PAGES_PER_READ)]
        return events_between(pages, low, high)[:limit]

    async def dump(self) -> AsyncIterator[Chunk]:
        connection = await self._database.connect("dump")
        try:
            with self._database.translate_errors():
                await check_schema(connection, self._database, "tables")
                async for chunk in dump(connection):
                    yield chunk
        finally:
            await close_connection(connection)

    async def faults(self) -> list[str]:
        async with self._readers.use() as connection:
            return await find_damage(connection, self._database.schema)

    async def close(self) -> None:
        await self.release()
        await self._readers.close()

    # ------------------------------------------------------------------------------------ the writer's session

    async def _open_writer(self) -> Connection:
        connection = await self._database.connect("tables", synchronous_commit="off")
        try:
            with self._database.translate_errors():
                what = f"the tables in schema {self._database.schema}"
                await take_lock(connection, self._database.lock_key("tables"), self._lock_wait_s, what)
                await migrate(connection, self._database, "tables")
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _write_transaction(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """One transaction of the writer. After a fault its session is cut; the next one waits until that has ended."""
        if self._writer is None or self._writer.is_closed():
            self._writer = await self._open_writer()
        connection = self._writer
        try:
            with self._database.translate_errors():
                transaction = connection.transaction()
                await transaction.start()
                await work(connection)
                await transaction.commit()
        except BaseException:  # no ROLLBACK: cutting the session rolls back, and cannot hide a cancellation
            self._writer = None
            connection.terminate()
            raise


async def _checkpoint(connection: Connection) -> JournalHead:
    return head_from_row(await connection.fetchrow(_SQL["checkpoint"]))


async def _write(
    connection: Connection,
    rows: Mapping[str, Sequence[Row]],
    claims: Sequence[tuple[bytes, Claim]],
    checkpoint: JournalHead,
    after: JournalHead | None,
) -> None:
    if after is not None and (stored := await _checkpoint(connection)) != after:
        raise Unavailable("ENG-004", f"the tables are at batch {stored.number}, not {after.number}")
    for table, table_rows in rows.items():
        await put_rows(connection, table, table_rows, after)
    await add_claims(connection, claims, checkpoint.time_ms)
    await connection.execute(_SQL["put_checkpoint"], *head_values(checkpoint))


async def _truncate(connection: Connection) -> None:
    """TRUNCATE if there is no reader, DELETE beside a reader that keeps a snapshot open."""
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = '1s'")
            await connection.execute(f"TRUNCATE {', '.join(_ALL)}")
    except asyncpg.LockNotAvailableError:
        for table in _ALL:
            await connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names from our own table


def _get_sql(table: str) -> str:
    """Row and checkpoint in one statement, so of one moment; nulls if there is no row."""
    as_of = "SELECT coalesce(max(last_event), 0) AS last_event FROM checkpoint"
    row = f"{SELECT[table]} WHERE {KEYS[table]} = $1"
    return f"SELECT at.last_event, row.* FROM ({as_of}) AS at LEFT JOIN ({row}) AS row ON true"  # noqa: S608


def _page_sql(table: str, filters: tuple[str, ...], *, is_newest_first: bool) -> str:
    """Rows and checkpoint in one statement, so of one moment; one row of nulls if there are no rows."""
    rows = page_statement(table, filters, "$", is_newest_first=is_newest_first, are_parts_limited=True)
    order = f"{KEYS[table]} DESC" if is_newest_first else KEYS[table]
    as_of = "SELECT coalesce(max(last_event), 0) AS last_event FROM checkpoint"
    return f"SELECT at.last_event, row.* FROM ({as_of}) AS at LEFT JOIN ({rows}) AS row ON true ORDER BY row.{order}"  # noqa: S608
