"""The gateway's index on PostgreSQL (ARC-004)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from holdfast.adapters.item_index import BucketEntry, IndexedItem, ItemQuery
from holdfast.adapters.postgres.connect import Connection, Database, ReaderPool, close_connection
from holdfast.adapters.postgres.migrate import check_schema, migrate
from holdfast.adapters.sql import item_queries
from holdfast.adapters.sql.item_queries import ENTRIES_MAX, TABLES, Search, item_from_row, probe, rarest_first
from holdfast.adapters.sql.named_queries import postgres_queries
from holdfast.core.base.errors import Unavailable

READERS: Final = 4
_SQL: Final = postgres_queries("items")


class PostgresItemIndex:
    """One session writes, under a lock; some read."""

    def __init__(self, database: Database, *, query_ms: int) -> None:
        self._database, self._query_ms = database, query_ms
        self._readers = ReaderPool(database, "gateway-reader", READERS, self._prepare)
        self._writer: Connection | None = None
        self._one_at_a_time = asyncio.Lock()

    async def open(self) -> bool:
        async with self._write() as writer:
            is_complete = bool(await writer.fetchval(_SQL["get_complete"]))
            await writer.execute(_SQL["set_complete"], 0)
        return is_complete

    async def add(self, item: IndexedItem, tag_keys: Sequence[bytes], entry: BucketEntry | None) -> None:
        async with self._write() as writer, writer.transaction():
            is_new = await writer.fetchval(_SQL["insert_item"], *item[:-1], int(item.is_public)) is not None
            if is_new:
                await writer.execute(_SQL["add_usage"], item.key_id, item.size)
            if item.is_public and (
                is_new or await writer.fetchval(_SQL["publish_item"], item.id, item.created_ms) is not None
            ):
                await writer.execute(_SQL["insert_tag"], list(tag_keys), item.created_ms, item.id)
            if entry is not None:
                await writer.execute(_SQL["insert_entry"], *entry)

    async def get(self, id_: str) -> IndexedItem | None:
        async with self._read() as reader:
            row = await reader.fetchrow(_SQL["get_item"], id_)
        return None if row is None else item_from_row(tuple(row))

    async def rarest_first(self, query: ItemQuery) -> ItemQuery:
        if len(query.tags) < 2:
            return query
        async with self._read() as reader:
            return await _rarest_first(reader, query)

    async def find(self, query: ItemQuery, limit: int) -> list[IndexedItem]:
        async with self._read() as reader:
            search = Search(query, is_numbered=True)
            sql = search.find(limit)
            return [item_from_row(tuple(row)) for row in await reader.fetch(sql, *search.values)]

    async def count(self, query: ItemQuery) -> int:
        async with self._read() as reader:
            search = Search(query, is_numbered=True)
            sql = search.count()
            return int(await reader.fetchval(sql, *search.values))

    async def totals(self) -> tuple[int, int]:
        async with self._read() as reader:
            items, size = await reader.fetchrow(_SQL["totals"])
        return items, size

    async def usage(self, key_id: str) -> tuple[int, int]:
        async with self._read() as reader:
            row = await reader.fetchrow(_SQL["usage"], key_id)
        return (0, 0) if row is None else (row[0], row[1])

    async def entries(self, bucket: str) -> list[BucketEntry]:
        async with self._read() as reader:
            return [BucketEntry._make(row) for row in await reader.fetch(_SQL["entries"], bucket, ENTRIES_MAX)]

    async def has_all(self, uploads: Sequence[tuple[str, BucketEntry | None]]) -> list[bool]:
        async with self._read() as reader:
            return [await _has(reader, id_, entry) for id_, entry in uploads]

    async def clear(self) -> None:
        async with self._write() as writer:
            await writer.execute(f"TRUNCATE {', '.join(TABLES)}")

    async def close(self, *, is_complete: bool) -> None:
        if self._writer is not None:
            if not self._writer.is_closed():
                async with self._write() as writer:
                    await writer.execute(_SQL["set_complete"], int(is_complete))
            await close_connection(self._writer)
            self._writer = None
        await self._readers.close()

    # ------------------------------------------------------------------------------------ sessions

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[Connection]:
        async with self._one_at_a_time:
            if self._writer is None or self._writer.is_closed():
                self._writer = await self._open_writer()
            try:
                with self._database.translate_errors():
                    yield self._writer
            except asyncio.CancelledError:
                self._writer.terminate()  # a statement may still run: the next writer begins anew
                raise

    async def _open_writer(self) -> Connection:
        writer = await self._database.connect("gateway-writer")
        try:
            with self._database.translate_errors():
                await migrate(writer, self._database, "items")
                key = self._database.lock_key("gateway")
                is_ours = await writer.fetchval("SELECT pg_try_advisory_lock($1)", key)
        except BaseException:
            writer.terminate()
            raise
        if not is_ours:
            await close_connection(writer)
            where = f"schema {self._database.schema}"
            raise Unavailable("ARC-004", f"another gateway uses {where}", "one index belongs to one gateway")
        return writer

    async def _prepare(self, reader: Connection) -> None:
        await check_schema(reader, self._database, "items")
        await reader.execute(f"SET statement_timeout = {self._query_ms}")

    @asynccontextmanager
    async def _read(self) -> AsyncIterator[Connection]:
        """A query that takes too long is cancelled by the server."""
        async with self._readers.use() as reader:
            try:
                yield reader
            except asyncpg.QueryCanceledError:
                message = f"the query took longer than {self._query_ms} ms"
                raise Unavailable("ARC-004", message, "use rarer tags") from None


async def _has(reader: Connection, id_: str, entry: BucketEntry | None) -> bool:
    if entry is None:
        return await reader.fetchval(_SQL["has_item"], id_) is not None
    return await reader.fetchval(_SQL["has_entry"], *entry[:4]) is not None


async def _rarest_first(reader: Connection, query: ItemQuery) -> ItemQuery:
    counts: list[int] = []
    for rows in item_queries.PROBE_ROWS:
        counts = [await reader.fetchval(probe(rows, is_numbered=True), tag) for tag in query.tags]
        if min(counts) < rows:
            break
    return rarest_first(query, counts)
