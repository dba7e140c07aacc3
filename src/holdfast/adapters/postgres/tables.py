"""The projection on PostgreSQL: rows by COPY, claims in lots and the checkpoint in one transaction; rebuildable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import asyncpg

from holdfast.adapters.postgres.connect import COMMAND_S, CONNECT_S, Connection, Database, Lines, hang_up
from holdfast.adapters.postgres.copy import add_lot, all_lots, put_rows
from holdfast.adapters.postgres.examine import dump, faults
from holdfast.adapters.postgres.lock import take_lock
from holdfast.adapters.postgres.migrate import check_schema, migrate
from holdfast.adapters.postgres.settings import SCHEMA
from holdfast.adapters.sql.lots import Lot, keys_of_all
from holdfast.adapters.sql.shape import FILTERS, KEYS, where
from holdfast.adapters.sql.statements import postgres_queries
from holdfast.core.claim import Claim
from holdfast.core.event import Tip
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.core.values import EventNo
from holdfast.ports import Chunk, Page, Row

PATIENCE_S: Final = 30.0
"""How long `open` waits for the writer before us: its journal's lock is gone already, so it is about to end."""
READERS: Final = 3
_SQL: Final = postgres_queries("tables")
_CHUNK: Final = 10_000
_ALL: Final = (*KEYS, "claim", "lot", "checkpoint")


class PostgresTables:
    """ENG-004 on PostgreSQL. A crash of the server may lose the newest rows, and the journal brings them back.

    One session writes, and it has a lock as the journal's owner has: a writer that was cut off, or one that was
    replaced and wakes up, can never put older rows over newer ones.
    """

    def __init__(
        self,
        dsn: str,
        schema: str = SCHEMA,
        *,
        connect_s: float = CONNECT_S,
        command_s: float = COMMAND_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._database = Database(dsn, schema, connect_s=connect_s, command_s=command_s)
        self._patience_s = patience_s
        check = partial(check_schema, database=self._database, name="tables")
        self._readers = Lines(self._database, "tables-reader", READERS, check)
        self._writer: Connection | None = None
        self._known: Tip | None = None
        """Where the tables stood when we last looked or wrote; None before `open`."""

    async def open(self) -> Tip:
        self._known = await self._found()
        return self._known

    async def checkpoint(self) -> Tip:
        async with self._readers.use() as connection:
            return await _checkpoint(connection)

    async def write(
        self, rows: Mapping[str, Sequence[Row]], claims: Sequence[tuple[bytes, Claim]], checkpoint: Tip
    ) -> None:
        if not await self._is_written(checkpoint):
            await self._writing(lambda connection: _write(connection, rows, claims, checkpoint))
        self._known = checkpoint

    async def drop(self) -> None:
        try:
            await self._writing(_empty)
        except Corrupt:
            await self._writing(self._make_anew)
        self._known = Tip()

    async def _make_anew(self, connection: Connection) -> None:
        for table in _ALL:
            await connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE")
        await connection.execute("DELETE FROM schema_version WHERE name = 'tables'")
        await migrate(connection, self._database, "tables")

    async def get(self, table: str, key: object) -> Row | None:
        async with self._readers.use() as connection:
            sql = f"SELECT * FROM {table} WHERE {KEYS[table]} = $1"  # noqa: S608 - names from our own table
            row = await connection.fetchrow(sql, key)
            return tuple(row) if row else None

    async def page(self, table: str, match: Mapping[str, object], after: object, limit: int) -> Page:
        assert match.keys() <= FILTERS[table], "filters are columns of our own table"
        async with self._readers.use() as connection:
            found = await connection.fetch(_page_sql(table, tuple(match)), after, limit, *match.values())
        rows: list[Row] = [tuple(row)[1:] for row in found if row[1] is not None]
        return rows, EventNo(found[0][0])

    async def find(self, table: str, column: str, values: Sequence[object]) -> list[Row]:
        assert column in FILTERS[table], "filters are columns of our own table"
        sql = f"SELECT * FROM {table} WHERE {column} = ANY ($1)"  # noqa: S608 - names from our own table
        async with self._readers.use() as connection:
            return [tuple(row) for row in await connection.fetch(sql, list(values))]

    def claim_keys(self) -> AsyncIterator[Sequence[bytes]]:
        return keys_of_all(self._lots, self._claim_keys)

    async def _lots(self) -> list[Lot]:
        async with self._readers.use() as connection:
            return await all_lots(connection)

    async def _claim_keys(self, lot: int, after: bytes) -> list[bytes]:
        async with self._readers.use() as connection:
            found: list[bytes] = await connection.fetchval(_SQL["claim_keys"], lot, after, _CHUNK)
            return found

    async def find_claim(self, key: bytes) -> Claim | None:
        async with self._readers.use() as connection:
            row = await connection.fetchrow(_SQL["find_claim"], key)
            return Claim(EventNo(row[0]), row[1]) if row else None

    async def dump(self) -> AsyncIterator[Chunk]:
        connection = await self._database.connect("dump")
        try:
            with self._database.named():
                await check_schema(connection, self._database, "tables")
                async for chunk in dump(connection):
                    yield chunk
        finally:
            await hang_up(connection)

    async def faults(self) -> list[str]:
        async with self._readers.use() as connection:
            return await faults(connection, self._database.schema)

    async def close(self) -> None:
        if self._writer is not None:
            connection, self._writer = self._writer, None
            await hang_up(connection)
        await self._readers.close()

    # ------------------------------------------------------------------------------------ the writer's session

    async def _found(self) -> Tip:
        """Where the tables stand, asked by the session that alone may write: nobody can change it meanwhile."""
        if self._writer is None or self._writer.is_closed():
            self._writer = await self._become_writer()
        with self._database.named():
            return await _checkpoint(self._writer)

    async def _become_writer(self) -> Connection:
        connection = await self._database.connect("tables", synchronous_commit="off")
        try:
            with self._database.named():
                what = f"the tables in schema {self._database.schema}"
                await take_lock(connection, self._database.key("tables"), self._patience_s, what)
                await migrate(connection, self._database, "tables")
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _is_written(self, checkpoint: Tip) -> bool:
        """Whether this was written by an attempt whose outcome was not known. A lot of claims must not come twice."""
        if self._known is None:
            raise Unavailable("ENG-004", "the tables are not open")
        if self._writer is not None and not self._writer.is_closed():
            return False
        found = await self._found()
        if found not in (self._known, checkpoint):
            raise Unavailable("ENG-004", "another node has written the tables", "it owns the journal now")
        return found == checkpoint

    async def _writing(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """One transaction of the writer. After a fault its session is cut; the next one waits until it has ended."""
        if self._writer is None or self._writer.is_closed():
            self._writer = await self._become_writer()
        connection = self._writer
        try:
            with self._database.named():
                transaction = connection.transaction()
                await transaction.start()
                await work(connection)
                await transaction.commit()
        except BaseException:  # no rollback: cutting the session is one, and cannot hide that we were cancelled
            self._writer = None
            connection.terminate()
            raise


async def _checkpoint(connection: Connection) -> Tip:
    row = await connection.fetchrow(_SQL["checkpoint"])
    return Tip(*row) if row else Tip()


async def _write(
    connection: Connection,
    rows: Mapping[str, Sequence[Row]],
    claims: Sequence[tuple[bytes, Claim]],
    checkpoint: Tip,
) -> None:
    for table, lines in rows.items():
        await put_rows(connection, table, lines)
    if claims:
        await add_lot(connection, claims)
    tip = (checkpoint.number, checkpoint.epoch, checkpoint.last, checkpoint.time_ms, checkpoint.hash)
    await connection.execute(_SQL["put_checkpoint"], *tip)


async def _empty(connection: Connection) -> None:
    """At once where nobody reads, row by row beside somebody who keeps a snapshot open."""
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = '1s'")
            await connection.execute(f"TRUNCATE {', '.join(_ALL)}")
    except asyncpg.LockNotAvailableError:
        for table in _ALL:
            await connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names from our own table


def _page_sql(table: str, filters: tuple[str, ...]) -> str:
    """Rows and checkpoint in one statement, so of one moment; a row of nulls where no row is found."""
    key = KEYS[table]
    rows = f"SELECT * FROM {table} WHERE {key} > $1{where(filters, '$', 3)} ORDER BY {key} LIMIT $2"  # noqa: S608
    at = "SELECT coalesce(max(last_event), 0) AS last_event FROM checkpoint"
    return f"SELECT at.last_event, row.* FROM ({at}) AS at LEFT JOIN ({rows}) AS row ON true ORDER BY row.{key}"  # noqa: S608
