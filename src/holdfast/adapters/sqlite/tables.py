"""The projection in a second SQLite file: rows, claims and checkpoint in one transaction, rebuildable at any time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import apsw

from holdfast.adapters.sql.claim_rows import ClaimRow, dump_row, find_by_key, sorted_rows, split_id
from holdfast.adapters.sql.journal_rows import head_from_row, head_values
from holdfast.adapters.sql.named_queries import queries
from holdfast.adapters.sql.sorted_runs import iter_run_keys, runs_to_merge
from holdfast.adapters.sql.table_schema import COLUMNS, FILTERS, KEYS, upsert_clause, where_clause
from holdfast.adapters.sqlite.connect import connect, connect_to_read, is_initialized, migrate
from holdfast.adapters.sqlite.connection_thread import ConnectionThread
from holdfast.adapters.sqlite.integrity import check_row_types, find_damage
from holdfast.adapters.sqlite.owner_lock import OwnerLock
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import EventNo
from holdfast.core.index.unique_ids import Claim
from holdfast.ports import CLAIMS, Chunk, FoundClaims, Row, RowPage, is_row_deleted

T = TypeVar("T")
_SQL: Final = queries("tables")
_CHUNK: Final = 10_000
LOCK_WAIT_S: Final = 30.0
"""How long `open` waits for the previous writer, which ends with its node."""
_LOCK_POLL_S: Final = 0.02
_HEAD_TYPES: Final = (int, int, int, int, bytes)
_IF_DAMAGED: Final = "nothing is lost: stop the node and run holdfast db rebuild"


class SqliteTables:
    """ENG-004 on SQLite. Synchronous NORMAL: a crash may lose the newest rows, and the journal brings them back.

    Whoever writes holds a lock on `tables.lock`. It is independent of the journal's ownership: the projector of a node
    that was killed finishes its transaction before the next one begins.
    """

    def __init__(self, folder: Path, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self._path = folder / "tables.db"
        self._lock, self._lock_wait_s = OwnerLock(folder / "tables.lock"), lock_wait_s
        self._writer = ConnectionThread("tables-writer", self._path, _IF_DAMAGED)
        self._reader = ConnectionThread("tables-reader", self._path, _IF_DAMAGED)
        self._write_db: apsw.Connection | None = None
        self._read_db: apsw.Connection | None = None

    async def open(self) -> JournalHead:
        await self._take_lock()
        return await self._writer.run(self._open)

    async def release(self) -> None:
        await self._writer.run(self._close_writer)
        self._lock.release()

    async def _take_lock(self) -> None:
        end = asyncio.get_running_loop().time() + self._lock_wait_s
        while True:
            try:
                await self._writer.run(self._lock.acquire)
                return
            except Unavailable:
                if asyncio.get_running_loop().time() >= end:
                    raise
            await asyncio.sleep(_LOCK_POLL_S)

    async def checkpoint(self) -> JournalHead:
        return await self._run_read(_checkpoint)

    async def write(
        self,
        rows: Mapping[str, Sequence[Row]],
        claims: Sequence[tuple[bytes, Claim]],
        checkpoint: JournalHead,
        after: JournalHead | None = None,
    ) -> None:
        await self._writer.run(lambda: self._write(rows, claims, checkpoint, after))

    async def drop(self) -> None:
        await self._take_lock()
        if self._path.exists() and await self.faults():  # an emptied file stays damaged: a new one replaces it
            await self._reader.run(self._close_reader)
            await self._writer.run(self._replace)
        else:
            await self._writer.run(self._drop)

    async def get(self, table: str, key: object) -> tuple[Row | None, EventNo]:
        sql = f"SELECT * FROM {table} WHERE {KEYS[table]} = ?"  # noqa: S608 - names from our own table

        def read(db: apsw.Connection) -> tuple[Row | None, EventNo]:
            with db:  # row and checkpoint of one moment
                row: Row | None = db.execute(sql, (key,)).fetchone()
                as_of = _checkpoint(db).last
            return row, as_of

        return await self._run_read(read)

    async def page(self, table: str, match: Mapping[str, object], after: object, limit: int) -> RowPage:
        assert match.keys() <= FILTERS[table], "filters are columns of our own table"
        key = KEYS[table]
        sql = f"SELECT * FROM {table} WHERE {key} > ?{where_clause(tuple(match), '?')} ORDER BY {key} LIMIT ?"  # noqa: S608

        def read(db: apsw.Connection) -> RowPage:
            with db:  # rows and checkpoint of one moment
                rows: list[Row] = db.execute(sql, (after, *match.values(), limit)).fetchall()
                as_of = _checkpoint(db).last
            return rows, as_of

        return await self._run_read(read)

    async def find(self, table: str, column: str, values: Sequence[object]) -> list[Row]:
        assert column in FILTERS[table], "filters are columns of our own table"
        sql = f"SELECT * FROM {table} WHERE {column} = ?"  # noqa: S608 - names from our own table
        return await self._run_read(lambda db: [row for value in values for row in db.execute(sql, (value,))])

    def claim_keys(self) -> AsyncIterator[Sequence[int]]:
        return iter_run_keys(
            lambda: self._run_read(_list_runs), lambda run, first: self._run_read(partial(_claim_keys, run, first))
        )

    async def find_claims(self, keys: Sequence[bytes]) -> FoundClaims:
        return await self._run_read(partial(_find_claims, keys))

    async def dump(self) -> AsyncIterator[Chunk]:
        # A connection of its own: other readers see the newest rows meanwhile.
        worker = ConnectionThread("tables-dump", self._path, _IF_DAMAGED)
        db: apsw.Connection | None = None
        try:
            await worker.run(self._check_exists)
            db = await worker.run(partial(connect_to_read, self._path))
            await worker.run(partial(db.execute, "BEGIN"))
            checkpoint = await worker.run(partial(_checkpoint, db))
            yield checkpoint, CLAIMS, []
            for table in (*KEYS, CLAIMS):
                sql = _SQL["claims"] if table == CLAIMS else f"SELECT * FROM {table}"  # noqa: S608 - our own names
                rows = await worker.run(partial(db.execute, sql))
                while chunk := await worker.run(partial(_next_chunk, rows)):
                    yield checkpoint, table, _dumped_claims(chunk) if table == CLAIMS else chunk
        finally:
            if db is not None:
                await worker.run(db.close)
            await worker.close()

    async def faults(self) -> list[str]:
        if not self._path.exists():
            return []
        # The WAL is not checked: it may end early, since the tables catch up with the journal.
        return await find_damage(self._path, "tables", _IF_DAMAGED, has_writer=True)

    async def close(self) -> None:
        await self._reader.run(self._close_reader)
        await self._writer.run(self._close_writer)  # last: a connection that can write copies the WAL into the file
        self._lock.release()
        await self._writer.close()
        await self._reader.close()

    # ------------------------------------------------------------------------------------ in the writer's thread

    def _open(self) -> JournalHead:
        if self._write_db is None:
            db = connect(self._path, "NORMAL")
            migrate(db, "tables")
            self._write_db = db
        return _checkpoint(self._write_db)

    def _write(
        self,
        rows: Mapping[str, Sequence[Row]],
        claims: Sequence[tuple[bytes, Claim]],
        checkpoint: JournalHead,
        after: JournalHead | None,
    ) -> None:
        db = self._writer_connection()
        with db:
            if after is not None and (stored := _checkpoint(db)) != after:
                raise Unavailable("ENG-004", f"the tables are at batch {stored.number}, not {after.number}")
            for table, table_rows in rows.items():
                _put_rows(db, table, table_rows)
            if claims:
                _add_sorted_run(db, claims)
            db.execute(_SQL["put_checkpoint"], head_values(checkpoint))

    def _drop(self) -> None:
        self._open()
        db = self._writer_connection()
        with db:
            for table in (*KEYS, "claim", "sorted_run", "checkpoint"):
                db.execute(f"DELETE FROM {table}")  # noqa: S608 - names from our own table

    def _replace(self) -> None:
        """The damaged file is kept beside the new one: it may be another file in the wrong place."""
        self._close_writer()
        for suffix in ("", "-wal", "-shm"):
            path = self._path.with_name(self._path.name + suffix)
            if path.exists():
                path.replace(self._path.with_name(f"tables.damaged.db{suffix}"))
        self._open()

    def _writer_connection(self) -> apsw.Connection:
        if self._write_db is None:
            raise Unavailable("ENG-004", "the tables are not open")
        return self._write_db

    def _close_writer(self) -> None:
        if self._write_db is not None:
            self._write_db.close()
            self._write_db = None

    # ------------------------------------------------------------------------------------ in the reader's thread

    async def _run_read(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._reader.run(lambda: work(self._reader_connection()))

    def _reader_connection(self) -> apsw.Connection:
        if self._read_db is None:
            self._check_exists()
            db = connect_to_read(self._path)
            if not is_initialized(db, "tables"):
                db.close()
                raise self._missing()
            self._read_db = db
        return self._read_db

    def _check_exists(self) -> None:
        if not self._path.exists():
            raise self._missing()

    def _missing(self) -> Unavailable:
        return Unavailable("ENG-004", f"there are no tables at {self._path} yet", "the next start creates them")

    def _close_reader(self) -> None:
        if self._read_db is not None:
            self._read_db.close()
            self._read_db = None


def _put_rows(db: apsw.Connection, table: str, rows: Sequence[Row]) -> None:
    latest = {row[0]: row for row in rows}.values()
    db.executemany(_put_sql(table), [row for row in latest if not is_row_deleted(row)])
    if deleted := [row for row in latest if is_row_deleted(row)]:
        db.executemany(f"DELETE FROM {table} WHERE {KEYS[table]} = ?", deleted)  # noqa: S608 - our own names


@cache
def _put_sql(table: str) -> str:
    placeholders = ", ".join("?" * len(COLUMNS[table]))
    return f"INSERT INTO {table} VALUES ({placeholders}) {upsert_clause(table)}"  # noqa: S608 - our own names


def _checkpoint(db: apsw.Connection) -> JournalHead:
    row = db.execute(_SQL["checkpoint"]).fetchone()
    return head_from_row(check_row_types(_HEAD_TYPES, row) if row else None)


def _next_chunk(rows: apsw.Cursor) -> list[Row]:
    return list(islice(rows, _CHUNK))


def _dumped_claims(rows: Sequence[Row]) -> list[Row]:
    return [dump_row(_checked_claim(row)) for row in rows]


def _checked_claim(row: Row) -> ClaimRow:
    """Its two integers of the claim id may be negative."""
    if type(row[0]) is not int or type(row[1]) is not int:
        raise apsw.CorruptError(f"a claim holds values that were never stored: {row!r:.80}")
    event, checksum, until_ms = check_row_types((int, int, int), row[2:])
    return row[0], row[1], event, checksum, until_ms


def _find_claims(keys: Sequence[bytes], db: apsw.Connection) -> FoundClaims:
    with db:  # claims and checkpoint of one moment
        rows = [row for key in keys for row in db.execute(_SQL["find_claim"], (split_id(key)[0],))]
        checkpoint = _checkpoint(db)
    return FoundClaims(find_by_key(keys, map(_checked_claim, rows)), checkpoint)


def _list_runs(db: apsw.Connection) -> list[tuple[int, int]]:
    return [check_row_types((int, int), row) for row in db.execute(_SQL["list_runs"])]


def _claim_keys(run: int, first: int, db: apsw.Connection) -> list[int]:
    keys: list[int] = [key for (key,) in db.execute(_SQL["claim_keys"], (run, first, _CHUNK))]
    if set(map(type, keys)) - {int}:  # checked together: a start reads millions
        raise apsw.CorruptError(f"run {run} holds keys that were never stored")
    return keys


def _add_sorted_run(db: apsw.Connection, claims: Sequence[tuple[bytes, Claim]]) -> None:
    """Write one sorted run; merge runs of about one size when there are too many of them."""
    number = db.execute(_SQL["next_run"]).get
    db.executemany(
        _SQL["add_claim"],
        [(number, *row) for row in sorted_rows(claims)],
    )
    db.execute(_SQL["add_run"], (number, len(claims)))
    while alike := runs_to_merge(_list_runs(db)):
        number += 1
        db.execute(_SQL["merge_runs"], (number, json.dumps([run for run, _ in alike])))
        db.execute(_SQL["add_run"], (number, sum(size for _, size in alike)))
        for run, _ in alike:
            db.execute(_SQL["delete_run_claims"], (run,))
            db.execute(_SQL["delete_run"], (run,))
