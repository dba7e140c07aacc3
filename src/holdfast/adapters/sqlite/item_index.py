"""The gateway's index in a SQLite file of its own (ARC-004)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import apsw

from holdfast.adapters.item_index import BucketEntry, IndexedItem, ItemQuery
from holdfast.adapters.sql import item_queries
from holdfast.adapters.sql.item_queries import ENTRIES_MAX, TABLES, Search, item_from_row, probe, rarest_first
from holdfast.adapters.sql.named_queries import queries
from holdfast.adapters.sqlite.connect import connect, connect_to_read, migrate
from holdfast.adapters.sqlite.connection_thread import ConnectionThread
from holdfast.core.base.errors import Unavailable
from holdfast.system.durable_files import FOLDER_MODE, lock_file

T = TypeVar("T")
_SQL: Final = queries("items")
_IF_DAMAGED: Final = "nothing is lost: stop the gateway, remove the file and run holdfast gateway reindex"
_STEPS: Final = 50_000
"""SQLite asks after this many of its own steps whether a query may go on: a few milliseconds."""


class SqliteItemIndex:
    """Synchronous NORMAL: a crash may lose the newest rows, which the store's records bring back."""

    def __init__(self, file: Path, *, query_ms: int, monotonic_ms: Callable[[], int]) -> None:
        self._file, self._query_ms, self._monotonic_ms = file, query_ms, monotonic_ms
        self._writer = ConnectionThread("index-writer", file, _IF_DAMAGED)
        self._reader = ConnectionThread("index-reader", file, _IF_DAMAGED)
        self._write_db: apsw.Connection | None = None
        self._read_db: apsw.Connection | None = None
        self._lock: int | None = None

    async def open(self) -> bool:
        return await self._writer.run(self._open)

    async def add(self, item: IndexedItem, tag_keys: Sequence[bytes], entry: BucketEntry | None) -> None:
        await self._writer.run(lambda: self._add(item, tag_keys, entry))

    async def get(self, id_: str) -> IndexedItem | None:
        row = await self._read(lambda db: db.execute(_SQL["get_item"], (id_,)).fetchone())
        return None if row is None else item_from_row(row)

    async def rarest_first(self, query: ItemQuery) -> ItemQuery:
        return await self._read(lambda db: _rarest_first(db, query)) if len(query.tags) > 1 else query

    async def find(self, query: ItemQuery, limit: int) -> list[IndexedItem]:
        def read(db: apsw.Connection) -> list[IndexedItem]:
            search = Search(query, is_numbered=False)
            sql = search.find(limit)
            return [item_from_row(row) for row in db.execute(sql, search.values)]

        return await self._read(read)

    async def count(self, query: ItemQuery) -> int:
        def read(db: apsw.Connection) -> int:
            search = Search(query, is_numbered=False)
            sql = search.count()
            return int(db.execute(sql, search.values).get)

        return await self._read(read)

    async def totals(self) -> tuple[int, int]:
        return await self._read(lambda db: db.execute(_SQL["totals"]).get)

    async def usage(self, key_id: str) -> tuple[int, int]:
        return await self._read(lambda db: db.execute(_SQL["usage"], (key_id,)).get or (0, 0))

    async def entries(self, bucket: str) -> list[BucketEntry]:
        rows = await self._read(lambda db: db.execute(_SQL["entries"], (bucket, ENTRIES_MAX)).fetchall())
        return [BucketEntry._make(row) for row in rows]

    async def has_all(self, uploads: Sequence[tuple[str, BucketEntry | None]]) -> list[bool]:
        def read(db: apsw.Connection) -> list[bool]:
            return [_has(db, id_, entry) for id_, entry in uploads]

        return await self._read(read)

    async def clear(self) -> None:
        await self._writer.run(self._clear)

    async def close(self, *, is_complete: bool) -> None:
        await self._reader.run(self._close_reader)
        await self._writer.run(lambda: self._close(is_complete))
        await self._writer.close()
        await self._reader.close()

    # ------------------------------------------------------------------------------------ in the writer's thread

    def _open(self) -> bool:
        self._file.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        self._lock = lock_file(self._file.with_name(f"{self._file.name}.lock"))
        if self._lock is None:
            raise Unavailable("ARC-004", f"another gateway uses {self._file}", "one index belongs to one gateway")
        db = connect(self._file, "NORMAL")
        migrate(db, "items")
        self._write_db = db
        is_complete = bool(db.execute(_SQL["get_complete"]).get)
        self._set_complete(db, False)
        return is_complete

    def _set_complete(self, db: apsw.Connection, is_complete: bool) -> None:
        """Durable at once: an index that says so after a crash of the machine would hide items."""
        db.execute(_SQL["set_complete"], (int(is_complete),))
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)

    def _add(self, item: IndexedItem, tag_keys: Sequence[bytes], entry: BucketEntry | None) -> None:
        db = self._writer_connection()
        with db:
            is_new = db.execute(_SQL["insert_item"], (*item[:-1], int(item.is_public))).fetchall() != []
            if is_new:
                db.execute(_SQL["add_usage"], (item.key_id, item.size))
            if item.is_public and (
                is_new or db.execute(_SQL["publish_item"], (item.id, item.created_ms)).fetchall() != []
            ):
                db.executemany(_SQL["insert_tag"], [(tag, item.created_ms, item.id) for tag in tag_keys])
            if entry is not None:
                db.execute(_SQL["insert_entry"], entry)

    def _clear(self) -> None:
        db = self._writer_connection()
        with db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names

    def _writer_connection(self) -> apsw.Connection:
        if self._write_db is None:
            raise Unavailable("ARC-004", "the index is not open")
        return self._write_db

    def _close(self, is_complete: bool) -> None:
        if self._write_db is not None:
            self._set_complete(self._write_db, is_complete)
            self._write_db.close()
            self._write_db = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ------------------------------------------------------------------------------------ in the reader's thread

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._reader.run(lambda: self._limited(work))

    def _limited(self, work: Callable[[apsw.Connection], T]) -> T:
        """A query that takes too long is ended: the next one waits behind it."""
        if self._read_db is None:
            if not self._file.exists():
                hint = "holdfast gateway makes it, holdfast gateway reindex fills it from the store"
                raise Unavailable("ARC-004", f"there is no index {self._file}", hint)
            self._read_db = connect_to_read(self._file)
        until_ms = self._monotonic_ms() + self._query_ms
        self._read_db.set_progress_handler(lambda: self._monotonic_ms() > until_ms, _STEPS)
        try:
            return work(self._read_db)
        except apsw.InterruptError:
            raise Unavailable("ARC-004", f"the query took longer than {self._query_ms} ms", "use rarer tags") from None

    def _close_reader(self) -> None:
        if self._read_db is not None:
            self._read_db.close()
            self._read_db = None


def _has(db: apsw.Connection, id_: str, entry: BucketEntry | None) -> bool:
    if entry is None:
        return db.execute(_SQL["has_item"], (id_,)).get is not None
    return db.execute(_SQL["has_entry"], entry[:4]).get is not None


def _rarest_first(db: apsw.Connection, query: ItemQuery) -> ItemQuery:
    counts: list[int] = []
    for rows in item_queries.PROBE_ROWS:
        counts = [int(db.execute(probe(rows, is_numbered=False), (tag,)).get) for tag in query.tags]
        if min(counts) < rows:
            break
    return rarest_first(query, counts)
