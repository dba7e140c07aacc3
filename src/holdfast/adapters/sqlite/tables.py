"""The projection in a second SQLite file: rows, claims and checkpoint in one transaction, rebuildable at any time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeVar

import apsw

from holdfast.adapters.sql.lots import keys_of_all, lots_to_merge
from holdfast.adapters.sql.shape import COLUMNS, FILTERS, KEYS, replacing, where
from holdfast.adapters.sql.statements import queries
from holdfast.adapters.sqlite.connect import connect, connect_to_read, is_made, migrate
from holdfast.adapters.sqlite.examine import as_stored, examine
from holdfast.adapters.sqlite.worker import Worker
from holdfast.core.claim import Claim
from holdfast.core.event import Tip
from holdfast.core.refusal import Unavailable
from holdfast.ports import CLAIMS, Chunk, Page, Row, is_gone

T = TypeVar("T")
_SQL: Final = queries("tables")
_CHUNK: Final = 10_000
_TIP: Final = (int, int, int, int, bytes)
_IF_DAMAGED: Final = "nothing is lost: stop the node and run holdfast db rebuild"


class SqliteTables:
    """ENG-004 on SQLite. Synchronous NORMAL: a crash may lose the newest rows, and the journal brings them back."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "tables.db"
        self._writer = Worker("tables-writer", self._path, _IF_DAMAGED)
        self._reader = Worker("tables-reader", self._path, _IF_DAMAGED)
        self._to_write: apsw.Connection | None = None
        self._to_read: apsw.Connection | None = None

    async def open(self) -> Tip:
        return await self._writer.do(self._open)

    async def checkpoint(self) -> Tip:
        return await self._reading(_checkpoint)

    async def write(
        self, rows: Mapping[str, Sequence[Row]], claims: Sequence[tuple[bytes, Claim]], checkpoint: Tip
    ) -> None:
        await self._writer.do(lambda: self._write(rows, claims, checkpoint))

    async def drop(self) -> None:
        if self._path.exists() and await self.faults():  # what is emptied stays damaged: another file takes its place
            await self._reader.do(self._close_reader)
            await self._writer.do(self._replace)
        else:
            await self._writer.do(self._drop)

    async def get(self, table: str, key: object) -> Row | None:
        sql = f"SELECT * FROM {table} WHERE {KEYS[table]} = ?"  # noqa: S608 - names from our own table
        return await self._reading(lambda db: db.execute(sql, (key,)).fetchone())

    async def page(self, table: str, match: Mapping[str, object], after: object, limit: int) -> Page:
        assert match.keys() <= FILTERS[table], "filters are columns of our own table"
        key = KEYS[table]
        sql = f"SELECT * FROM {table} WHERE {key} > ?{where(tuple(match), '?')} ORDER BY {key} LIMIT ?"  # noqa: S608

        def read(db: apsw.Connection) -> Page:
            with db:  # rows and checkpoint of one moment
                rows: list[Row] = db.execute(sql, (after, *match.values(), limit)).fetchall()
                as_of = _checkpoint(db).last
            return rows, as_of

        return await self._reading(read)

    async def find(self, table: str, column: str, values: Sequence[object]) -> list[Row]:
        assert column in FILTERS[table], "filters are columns of our own table"
        sql = f"SELECT * FROM {table} WHERE {column} = ?"  # noqa: S608 - names from our own table
        return await self._reading(lambda db: [row for value in values for row in db.execute(sql, (value,))])

    def claim_keys(self) -> AsyncIterator[Sequence[bytes]]:
        return keys_of_all(
            lambda: self._reading(_lots), lambda lot, after: self._reading(partial(_claim_keys, lot, after))
        )

    async def find_claim(self, key: bytes) -> Claim | None:
        return await self._reading(partial(_claim, key))

    async def dump(self) -> AsyncIterator[Chunk]:
        worker = Worker("tables-dump", self._path, _IF_DAMAGED)  # its own connection: others read the newest meanwhile
        db: apsw.Connection | None = None
        try:
            await worker.do(self._check_there)
            db = await worker.do(partial(connect_to_read, self._path))
            await worker.do(partial(db.execute, "BEGIN"))
            at = await worker.do(partial(_checkpoint, db))
            yield at, CLAIMS, []
            for table in (*KEYS, CLAIMS):
                sql = _SQL["claims"] if table == CLAIMS else f"SELECT * FROM {table}"  # noqa: S608 - our own names
                rows = await worker.do(partial(db.execute, sql))
                while chunk := await worker.do(partial(_some, rows)):
                    yield at, table, chunk
        finally:
            if db is not None:
                await worker.do(db.close)
            await worker.close()

    async def faults(self) -> list[str]:
        if not self._path.exists():
            return []
        return await examine(
            self._path, "tables", _IF_DAMAGED, has_writer=True
        )  # a log of tables may end early: they catch up

    async def close(self) -> None:
        await self._reader.do(self._close_reader)
        await self._writer.do(self._close_writer)  # last: who can write copies the log into the file
        await self._writer.close()
        await self._reader.close()

    # ------------------------------------------------------------------------------------ in the writer's thread

    def _open(self) -> Tip:
        if self._to_write is None:
            db = connect(self._path, "NORMAL")
            migrate(db, "tables")
            self._to_write = db
        return _checkpoint(self._to_write)

    def _write(self, rows: Mapping[str, Sequence[Row]], claims: Sequence[tuple[bytes, Claim]], checkpoint: Tip) -> None:
        db = self._writer_db()
        with db:
            for table, lines in rows.items():
                _put_rows(db, table, lines)
            if claims:
                _add_lot(db, claims)
            tip = (checkpoint.number, checkpoint.epoch, checkpoint.last, checkpoint.time_ms, checkpoint.hash)
            db.execute(_SQL["put_checkpoint"], tip)

    def _drop(self) -> None:
        self._open()
        db = self._writer_db()
        with db:
            for table in (*KEYS, "claim", "lot", "checkpoint"):
                db.execute(f"DELETE FROM {table}")  # noqa: S608 - names from our own table

    def _replace(self) -> None:
        """The damaged file stays beside the new one: it may be something that only lies in the wrong place."""
        self._close_writer()
        for suffix in ("", "-wal", "-shm"):
            path = self._path.with_name(self._path.name + suffix)
            if path.exists():
                path.replace(self._path.with_name(f"tables.damaged.db{suffix}"))
        self._open()

    def _writer_db(self) -> apsw.Connection:
        if self._to_write is None:
            raise Unavailable("ENG-004", "the tables are not open")
        return self._to_write

    def _close_writer(self) -> None:
        if self._to_write is not None:
            self._to_write.close()
            self._to_write = None

    # ------------------------------------------------------------------------------------ in the reader's thread

    async def _reading(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._reader.do(lambda: work(self._reader_db()))

    def _reader_db(self) -> apsw.Connection:
        if self._to_read is None:
            self._check_there()
            db = connect_to_read(self._path)
            if not is_made(db, "tables"):
                db.close()
                raise self._not_there()
            self._to_read = db
        return self._to_read

    def _check_there(self) -> None:
        if not self._path.exists():
            raise self._not_there()

    def _not_there(self) -> Unavailable:
        return Unavailable("ENG-004", f"there are no tables at {self._path} yet", "the next start makes them")

    def _close_reader(self) -> None:
        if self._to_read is not None:
            self._to_read.close()
            self._to_read = None


def _put_rows(db: apsw.Connection, table: str, rows: Sequence[Row]) -> None:
    latest = {row[0]: row for row in rows}.values()
    db.executemany(_put_sql(table), [row for row in latest if not is_gone(row)])
    if dead := [row for row in latest if is_gone(row)]:
        db.executemany(f"DELETE FROM {table} WHERE {KEYS[table]} = ?", dead)  # noqa: S608 - our own names


@cache
def _put_sql(table: str) -> str:
    places = ", ".join("?" * len(COLUMNS[table]))
    return f"INSERT INTO {table} VALUES ({places}) {replacing(table)}"  # noqa: S608 - our own names


def _checkpoint(db: apsw.Connection) -> Tip:
    row = db.execute(_SQL["checkpoint"]).fetchone()
    return Tip(*as_stored(_TIP, row)) if row else Tip()


def _some(rows: apsw.Cursor) -> list[Row]:
    return list(islice(rows, _CHUNK))


def _claim(key: bytes, db: apsw.Connection) -> Claim | None:
    row = db.execute(_SQL["find_claim"], (key,)).fetchone()
    return Claim(*as_stored((int, int), row)) if row else None


def _lots(db: apsw.Connection) -> list[tuple[int, int]]:
    return [as_stored((int, int), row) for row in db.execute(_SQL["lots"])]


def _claim_keys(lot: int, after: bytes, db: apsw.Connection) -> list[bytes]:
    keys: list[bytes] = [key for (key,) in db.execute(_SQL["claim_keys"], (lot, after, _CHUNK))]
    if set(map(type, keys)) - {bytes}:  # looked at together: a start reads millions
        for key in keys:
            as_stored((bytes,), (key,))
    return keys


def _add_lot(db: apsw.Connection, claims: Sequence[tuple[bytes, Claim]]) -> None:
    """Write one sorted lot; where that makes too many lots of about one size, join them."""
    number = db.execute(_SQL["next_lot"]).get
    db.executemany(
        _SQL["put_claim"], [(number, key, each.event, each.checksum) for key, each in sorted(claims, key=itemgetter(0))]
    )
    db.execute(_SQL["put_lot"], (number, len(claims)))
    while alike := lots_to_merge(_lots(db)):
        number += 1
        db.execute(_SQL["merge_lot"], (number, json.dumps([lot for lot, _ in alike])))
        db.execute(_SQL["put_lot"], (number, sum(size for _, size in alike)))
        for lot, _ in alike:
            db.execute(_SQL["drop_lot_claims"], (lot,))
            db.execute(_SQL["drop_lot"], (lot,))
