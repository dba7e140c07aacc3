"""The journal in one SQLite file: WAL, synchronous FULL, one row per batch, one owner by lock and by number."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import apsw

from holdfast.adapters.sql.journal_rows import batch_from_row, batch_values, head_from_row
from holdfast.adapters.sql.named_queries import queries
from holdfast.adapters.sqlite.connect import connect, connect_to_read, is_initialized, migrate
from holdfast.adapters.sqlite.connection_thread import ConnectionThread
from holdfast.adapters.sqlite.integrity import check_row_types, find_damage
from holdfast.adapters.sqlite.owner_lock import OwnerLock
from holdfast.adapters.sqlite.wal import check_wal
from holdfast.adapters.sqlite.wal_space import WalSpace
from holdfast.core.base.errors import Corrupt, Fenced, Unavailable
from holdfast.core.base.event import Attachment, Batch, JournalHead
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.ports import OwnerBeat, StoredPayload

T = TypeVar("T")
_SQL: Final = queries("journal")
_PAGE: Final = 256
_POLL_S: Final = 0.02
"""SQLite does not notify other processes of a commit: a follower polls."""
_NUMBER_MAX: Final = 2**63 - 1
_TRIM_STEP: Final = 256
"""Batches deleted in one transaction: an owner that appends meanwhile waits for no more than these."""
_HEAD_TYPES: Final = (int, int, int, int, bytes)
_BATCH_TYPES: Final = (int, int, int, int, int, bytes, bytes, bytes)
_ATTACHMENT_TYPES: Final = (bytes, bytes)
_STORED_PAYLOAD_TYPES: Final = (int, bytes, int)
_IF_DAMAGED: Final = "stop the node and restore a backup; holdfast db check lists all damage"


class SqliteJournal:
    """ENG-001 on SQLite. The lock keeps a second owner out; the batch number stops one that got past it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.db"
        self._lock = OwnerLock(folder / "owner.lock")
        self._writer = ConnectionThread("journal-writer", self._path, _IF_DAMAGED)
        self._reader = ConnectionThread("journal-reader", self._path, _IF_DAMAGED)
        self._wal_space = WalSpace(self._path)
        self._write_db: apsw.Connection | None = None
        self._read_db: apsw.Connection | None = None

    async def acquire(self) -> JournalHead:
        return await self._writer.run(self._acquire)

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        await self._writer.run(lambda: self._append(batch, attachments))

    async def append_packed(self, pack: Callable[[], Batch], attachments: Sequence[Attachment]) -> Batch:
        return await self._writer.run(lambda: self._append_packed(pack, attachments))

    async def wait_until_unowned(self) -> None:
        while not await asyncio.to_thread(self._lock.is_free):  # noqa: ASYNC110 - another process owns it
            await asyncio.sleep(_POLL_S)

    async def heartbeat(self) -> None:
        await self._on_lock(self._lock.beat)  # not in the writer's thread, where an append may take its time

    async def owner_beat(self) -> OwnerBeat | None:
        return await self._on_lock(self._lock.last_beat)

    async def evict_owner(self, seen: OwnerBeat) -> None:
        await self._on_lock(partial(self._lock.evict, seen))

    async def wall_ms(self) -> int | None:
        return None  # it is the machine's

    async def _on_lock(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as fault:
            raise Unavailable("ENG-002", f"{self._path.parent}/owner.lock: {fault.strerror}") from fault

    async def tip(self) -> JournalHead:
        return await self._run_read(_read_head)

    async def wait_after(self, number: BatchNo) -> None:
        while (await self.tip()).number <= number:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        last = _NUMBER_MAX if until is None else until
        while True:
            page = await self._run_read(partial(_page, after, last))
            for batch in page:
                yield batch
            if len(page) < _PAGE:
                return
            after = page[-1].number

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        return await self._run_read(lambda db: db.execute(_SQL["batch_of"], (event,)).get)

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        return await self._run_read(lambda db: db.execute(_SQL["attachment"], (batch, digest)).get)

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        return await self._run_read(
            lambda db: [
                Attachment(*check_row_types(_ATTACHMENT_TYPES, row))
                for row in db.execute(_SQL["attachments"], (batch,))
            ]
        )

    async def stored_payloads(self, after: EventNo, until: EventNo) -> list[StoredPayload]:
        return await self._run_read(
            lambda db: [
                check_row_types(_STORED_PAYLOAD_TYPES, row)
                for row in db.execute(_SQL["stored_payloads"], (after, until))
            ]
        )

    async def delete_payloads(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        await self._writer.run(partial(self._delete_payloads, payloads))

    async def trimmed_until(self) -> BatchNo:
        return await self._run_read(lambda db: BatchNo(db.execute(_SQL["trimmed_until"]).get))

    async def trim(self, until: BatchNo) -> None:
        trimmed = await self.trimmed_until()
        while trimmed < (goal := min(until, (await self.tip()).number - 1)):
            step = BatchNo(min(goal, trimmed + _TRIM_STEP))
            started = time.monotonic()
            await self._writer.run(partial(self._trim, step))
            trimmed = step
            await asyncio.sleep(time.monotonic() - started)  # appends get as much time as the deletion took

    async def faults(self) -> list[str]:
        return await find_damage(
            self._path, "journal", _IF_DAMAGED, has_writer=not await asyncio.to_thread(self._lock.is_free)
        )

    async def close(self) -> None:
        await self._reader.run(self._close_reader)
        await self._writer.run(self._close_writer)  # last: a connection that can write copies the WAL into the file
        await self._writer.close()
        await self._reader.close()

    # ------------------------------------------------------------------------------------ in the writer's thread

    def _acquire(self) -> JournalHead:
        self._lock.acquire()
        if self._write_db is not None:
            self._write_db.close()  # after a failed sync its view of the file cannot be trusted
            self._write_db = None
        check_wal(self._path)  # before SQLite silently discards damaged frames
        db = connect(self._path, "FULL")
        # Copy every page of the WAL into the file and sync it: what a failed sync left only in the page cache becomes
        # durable here, or the node does not start.
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        migrate(db, "journal")
        self._wal_space.watch(db)
        self._write_db = db
        head = _read_head(db)
        if db.execute(_SQL["last_by_index"]).get != head.number:
            raise Corrupt("ENG-003", f"{self._path} is damaged: its last batches cannot be found", _IF_DAMAGED)
        return head

    def _owner_connection(self) -> apsw.Connection:
        if self._write_db is None:
            raise Unavailable("ENG-001", "the journal is not owned")
        return self._write_db

    def _trim(self, until: BatchNo) -> None:
        with self._write_transaction() as db:
            db.execute(_SQL["trim_batches"], (until,))
            db.execute(_SQL["trim_attachments"])

    def _delete_payloads(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        with self._write_transaction() as db:
            db.executemany(_SQL["delete_payload"], payloads)

    @contextmanager
    def _write_transaction(self) -> Iterator[apsw.Connection]:
        """One transaction on the owner's connection, or on a new one if another process owns the journal."""
        db = self._write_db or connect(self._path, "FULL")
        try:
            with db:
                yield db
        finally:
            if db is not self._write_db:
                db.close()

    def _append_packed(self, pack: Callable[[], Batch], attachments: Sequence[Attachment]) -> Batch:
        batch = pack()
        self._append(batch, attachments)
        return batch

    def _append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        db = self._owner_connection()
        if not attachments:
            db.execute(_SQL["append"], batch_values(batch))
            _check_appended(db, batch)
            return
        with db:
            db.execute(_SQL["append"], batch_values(batch))
            _check_appended(db, batch)
            db.executemany(_SQL["attach"], [(batch.number, each.digest, each.raw) for each in attachments])

    def _close_writer(self) -> None:
        if self._write_db is not None:
            self._write_db.close()
            self._write_db = None
        self._lock.release()

    # ------------------------------------------------------------------------------------ in the reader's thread

    async def _run_read(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._reader.run(lambda: work(self._reader_connection()))

    def _reader_connection(self) -> apsw.Connection:
        if self._read_db is None:
            if not self._path.exists():
                raise Unavailable("ENG-001", f"no journal at {self._path}", "start a node there first")
            db = connect_to_read(self._path)
            if not is_initialized(db, "journal") and not self._lock.is_free():
                db.close()
                raise Unavailable("ENG-001", f"{self._path} is being created", "try again in a moment")
            self._read_db = db
        return self._read_db

    def _close_reader(self) -> None:
        if self._read_db is not None:
            self._read_db.close()
            self._read_db = None


def _read_head(db: apsw.Connection) -> JournalHead:
    row = db.execute(_SQL["head"]).fetchone()
    return head_from_row(check_row_types(_HEAD_TYPES, row) if row else None)


def _page(after: BatchNo, last: int, db: apsw.Connection) -> list[Batch]:
    return [
        batch_from_row(check_row_types(_BATCH_TYPES, row)) for row in db.execute(_SQL["read"], (after, last, _PAGE))
    ]


def _check_appended(db: apsw.Connection, batch: Batch) -> None:
    if db.changes() != 1:
        raise Fenced(
            "ENG-001",
            f"batch {batch.number} is not the next one: another owner has written",
            "this node stops; the other one holds the journal",
        )
