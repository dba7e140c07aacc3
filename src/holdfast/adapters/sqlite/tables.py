"""The projection in a second SQLite file: rows, claims and checkpoint in one transaction, rebuildable at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import apsw

from holdfast.adapters.sql.claim_rows import (
    RECORD_BYTES,
    ClaimPage,
    check_page,
    events_between,
    find_by_key,
    pack_claims,
    split_pages,
    unpack_record,
    until_of,
)
from holdfast.adapters.sql.journal_rows import head_from_row, head_values
from holdfast.adapters.sql.named_queries import queries
from holdfast.adapters.sql.sorted_runs import (
    PAGES_PER_READ,
    SortedRun,
    iter_run_keys,
    make_run,
    merge_pages,
    runs_over,
    runs_to_merge,
)
from holdfast.adapters.sql.table_schema import (
    FILTERS,
    KEYS,
    SELECT,
    page_statement,
)
from holdfast.adapters.sqlite.connect import connect, connect_to_read, is_initialized, migrate
from holdfast.adapters.sqlite.connection_thread import ConnectionThread
from holdfast.adapters.sqlite.integrity import check_row_types, find_damage
from holdfast.adapters.sqlite.owner_lock import OwnerLock
from holdfast.adapters.sqlite.put_rows import put_rows
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import EventNo
from holdfast.core.index.unique_ids import Claim, claim_id
from holdfast.ports import CLAIMS, Chunk, FoundClaims, Row, RowPage

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
        self._lister = ConnectionThread("tables-lister", self._path, _IF_DAMAGED)
        self._read_dbs: dict[ConnectionThread, apsw.Connection] = {}
        """One connection for single rows and one for lists: who reads a row does not wait for another's list."""

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
            await self._close_readers()
            await self._writer.run(self._replace)
        else:
            await self._writer.run(self._drop)

    async def get(self, table: str, key: object) -> tuple[Row | None, EventNo]:
        sql = f"{SELECT[table]} WHERE {KEYS[table]} = ?"

        def read(db: apsw.Connection) -> tuple[Row | None, EventNo]:
            with db:  # row and checkpoint of one moment
                row: Row | None = db.execute(sql, (key,)).fetchone()
                as_of = _checkpoint(db).last
            return row, as_of

        return await self._run_read(read)

    async def page(
        self, table: str, match: Mapping[str, object], after: object, limit: int, *, is_newest_first: bool = False
    ) -> RowPage:
        assert match.keys() <= FILTERS[table], "filters are columns of our own table"
        sql = page_sql(table, tuple(match), is_newest_first=is_newest_first)

        def read(db: apsw.Connection) -> RowPage:
            with db:  # rows and checkpoint of one moment
                rows: list[Row] = db.execute(sql, (after, limit, *match.values())).fetchall()
                as_of = _checkpoint(db).last
            return rows, as_of

        return await self._run_read(read, self._lister)

    async def find(self, table: str, column: str, values: Sequence[object]) -> list[Row]:
        assert column in FILTERS[table] | {KEYS[table]}, "filters are columns of our own table"
        sql = f"{SELECT[table]} WHERE {column} = ?"
        return await self._run_read(lambda db: [row for value in values for row in db.execute(sql, (value,))])

    def claim_keys(self) -> AsyncIterator[Sequence[int]]:
        return iter_run_keys(
            lambda: self._run_read(_list_runs), lambda run, after: self._run_read(partial(_pages_after, run, after))
        )

    async def find_claims(self, keys: Sequence[bytes]) -> FoundClaims:
        return await self._run_read(partial(_find_claims, keys))

    async def find_claim_events(self, low: bytes, high: bytes, limit: int) -> list[EventNo]:
        pages = await self._run_read(partial(_pages_between, low, high))
        return events_between(pages, low, high)[:limit]

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
                sql = _SQL["pages"] if table == CLAIMS else SELECT[table]
                rows = await worker.run(partial(db.execute, sql))
                while chunk := await worker.run(partial(_next_chunk, rows)):
                    yield checkpoint, table, _dumped_claims(chunk, checkpoint.time_ms) if table == CLAIMS else chunk
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
        await self._close_readers()
        await self._writer.run(self._close_writer)  # last: a connection that can write copies the WAL into the file
        self._lock.release()
        await self._writer.close()
        await self._reader.close()
        await self._lister.close()

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
                put_rows(db, table, table_rows, after)
            _add_claims(db, claims, checkpoint.time_ms)
            db.execute(_SQL["put_checkpoint"], head_values(checkpoint))

    def _drop(self) -> None:
        self._open()
        db = self._writer_connection()
        with db:
            for table in (*KEYS, "claim_page", "sorted_run", "checkpoint"):
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

    # ------------------------------------------------------------------------------------ in a reader's thread

    async def _run_read(self, work: Callable[[apsw.Connection], T], reader: ConnectionThread | None = None) -> T:
        thread = reader or self._reader
        return await thread.run(lambda: work(self._reader_connection(thread)))

    def _reader_connection(self, thread: ConnectionThread) -> apsw.Connection:
        if thread not in self._read_dbs:
            self._check_exists()
            db = connect_to_read(self._path)
            if not is_initialized(db, "tables"):
                db.close()
                raise self._missing()
            self._read_dbs[thread] = db
        return self._read_dbs[thread]

    def _check_exists(self) -> None:
        if not self._path.exists():
            raise self._missing()

    def _missing(self) -> Unavailable:
        return Unavailable("ENG-004", f"there are no tables at {self._path} yet", "the next start creates them")

    async def _close_readers(self) -> None:
        for thread in (self._reader, self._lister):
            await thread.run(partial(self._close_reader, thread))

    def _close_reader(self, thread: ConnectionThread) -> None:
        if (db := self._read_dbs.pop(thread, None)) is not None:
            db.close()


@cache
def page_sql(table: str, filters: tuple[str, ...], *, is_newest_first: bool = False) -> str:
    """A page by these filters."""
    return page_statement(table, filters, "?", is_newest_first=is_newest_first)


def _checkpoint(db: apsw.Connection) -> JournalHead:
    row = db.execute(_SQL["checkpoint"]).fetchone()
    return head_from_row(check_row_types(_HEAD_TYPES, row) if row else None)


def _next_chunk(rows: apsw.Cursor) -> list[Row]:
    return list(islice(rows, _CHUNK))


def _dumped_claims(rows: Sequence[Row], now_ms: int) -> list[Row]:
    records = split_pages(check_page(page) for (page,) in rows)
    return [unpack_record(record) for record in records if not until_of(record) or until_of(record) > now_ms]


def _find_claims(keys: Sequence[bytes], db: apsw.Connection) -> FoundClaims:
    with db:  # claims and checkpoint of one moment
        found = [row for key in keys for row in db.execute(_SQL["find_claim"], (claim_id(key), RECORD_BYTES))]
        checkpoint = _checkpoint(db)
    return FoundClaims(find_by_key(keys, [check_page(record) for (record,) in found]), checkpoint)


def _pages_between(low: bytes, high: bytes, db: apsw.Connection) -> list[bytes]:
    return [page for (page,) in db.execute(_SQL["pages_between"], (low, high, PAGES_PER_READ))]


def _list_runs(db: apsw.Connection) -> list[SortedRun]:
    return [check_row_types((int, int, int), row) for row in db.execute(_SQL["list_runs"])]


def _pages_after(run: int, after: bytes, db: apsw.Connection) -> list[bytes]:
    return [check_page(page) for (page,) in db.execute(_SQL["pages_after"], (run, after, PAGES_PER_READ))]


def _add_claims(db: apsw.Connection, claims: Sequence[tuple[bytes, Claim]], now_ms: int) -> None:
    """Write sorted runs; merge runs of about one size when there are too many, delete those that are over."""
    for records in pack_claims(claims):
        _add_run(db, *make_run(records, now_ms))
    _delete_runs(db, runs_over(_list_runs(db), now_ms))
    while alike := runs_to_merge(_list_runs(db)):
        _add_run(db, *merge_pages((page for run in alike for (page,) in db.execute(_SQL["run_pages"], (run,))), now_ms))
        _delete_runs(db, alike)


def _add_run(db: apsw.Connection, pages: Sequence[ClaimPage], size: int, until_ms: int) -> None:
    if size:
        number = db.execute(_SQL["next_run"]).get
        db.executemany(_SQL["add_page"], [(number, *page) for page in pages])
        db.execute(_SQL["add_run"], (number, size, until_ms))


def _delete_runs(db: apsw.Connection, runs: Sequence[int]) -> None:
    for run in runs:
        db.execute(_SQL["delete_run_pages"], (run,))
        db.execute(_SQL["delete_run"], (run,))
