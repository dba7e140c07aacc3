"""The journal in one SQLite file: WAL, synchronous FULL, one row per batch, one owner by lock and by number."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import apsw

from holdfast.adapters.sql.statements import queries
from holdfast.adapters.sqlite.connect import connect, connect_to_read, is_made, migrate
from holdfast.adapters.sqlite.examine import as_stored, examine
from holdfast.adapters.sqlite.wal import check_log
from holdfast.adapters.sqlite.worker import Worker
from holdfast.core.event import Attachment, Batch, Tip
from holdfast.core.refusal import Corrupt, Fenced, Unavailable
from holdfast.core.values import BatchNo, Digest, EventNo
from holdfast.ports import Lying

T = TypeVar("T")
_SQL: Final = queries("journal")
_PAGE: Final = 256
_LOOK_AGAIN_S: Final = 0.02
"""SQLite tells nobody when another process commits: a follower looks again."""
_LOOKS: Final = 10
"""How often the lock is asked for before somebody else is said to own it."""
_NUMBER_MAX: Final = 2**63 - 1
_TRIM_STEP: Final = 256
"""Batches that one transaction lets go: an owner who wants to append meanwhile waits for no more."""
_TIP: Final = (int, int, int, int, bytes)
_BATCH: Final = (int, int, int, int, int, bytes, bytes, bytes)
_ATTACHMENT: Final = (bytes, bytes)
_LYING: Final = (int, bytes, int)
_IF_DAMAGED: Final = "stop the node and restore a backup; holdfast db check names all that is wrong"


class SqliteJournal:
    """ENG-001 on SQLite. The lock keeps a second owner out; the batch number stops one that got past it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.db"
        self._lock = OwnerLock(folder / "owner.lock")
        self._writer = Worker("journal-writer", self._path, _IF_DAMAGED)
        self._reader = Worker("journal-reader", self._path, _IF_DAMAGED)
        self._to_write: apsw.Connection | None = None
        self._to_read: apsw.Connection | None = None

    async def own(self) -> Tip:
        return await self._writer.do(self._own)

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        await self._writer.do(lambda: self._append(batch, attachments))

    async def wait_free(self) -> None:
        while not await asyncio.to_thread(self._lock.is_free):  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def tip(self) -> Tip:
        return await self._reading(_tip)

    async def wait_beyond(self, number: BatchNo) -> None:
        while (await self.tip()).number <= number:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        last = _NUMBER_MAX if until is None else until
        while True:
            page = await self._reading(partial(_page, after, last))
            for batch in page:
                yield batch
            if len(page) < _PAGE:
                return
            after = page[-1].number

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        return await self._reading(lambda db: db.execute(_SQL["batch_of"], (event,)).get)

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        return await self._reading(lambda db: db.execute(_SQL["attachment"], (batch, digest)).get)

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        return await self._reading(
            lambda db: [Attachment(*as_stored(_ATTACHMENT, row)) for row in db.execute(_SQL["attachments"], (batch,))]
        )

    async def attached(self, after: EventNo, until: EventNo) -> list[Lying]:
        return await self._reading(
            lambda db: [as_stored(_LYING, row) for row in db.execute(_SQL["attached"], (after, until))]
        )

    async def let_go(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        await self._writer.do(partial(self._let_go, payloads))

    async def floor(self) -> BatchNo:
        return await self._reading(lambda db: BatchNo(db.execute(_SQL["floor"]).get))

    async def trim(self, until: BatchNo) -> None:
        floor = await self.floor()
        while floor < (goal := min(until, (await self.tip()).number - 1)):
            step = BatchNo(min(goal, floor + _TRIM_STEP))
            begun = time.monotonic()
            await self._writer.do(partial(self._trim, step))
            floor = step
            await asyncio.sleep(time.monotonic() - begun)  # as long as others had to wait, they may go first

    async def faults(self) -> list[str]:
        return await examine(
            self._path, "journal", _IF_DAMAGED, has_writer=not await asyncio.to_thread(self._lock.is_free)
        )

    async def close(self) -> None:
        await self._reader.do(self._close_reader)
        await self._writer.do(self._close_writer)  # last: who can write copies the log into the file
        await self._writer.close()
        await self._reader.close()

    # ------------------------------------------------------------------------------------ in the writer's thread

    def _own(self) -> Tip:
        self._lock.take()
        if self._to_write is not None:
            self._to_write.close()  # after a failed sync its view of the file is not to be trusted
            self._to_write = None
        check_log(self._path)  # before SQLite silently makes the best of it
        db = connect(self._path, "FULL")
        # Copies every logged page into the file and syncs that: what a failed sync left only in the page cache
        # becomes durable here or the node does not start.
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        migrate(db, "journal")
        self._to_write = db
        tip = _tip(db)
        if db.execute(_SQL["end"]).get != tip.number:
            raise Corrupt("ENG-003", f"{self._path} is damaged: its last batches cannot be found", _IF_DAMAGED)
        return tip

    def _owned(self) -> apsw.Connection:
        if self._to_write is None:
            raise Unavailable("ENG-001", "the journal is not owned")
        return self._to_write

    def _trim(self, until: BatchNo) -> None:
        with self._beside() as db:
            db.execute(_SQL["trim_batches"], (until,))
            db.execute(_SQL["trim_attachments"])

    def _let_go(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        with self._beside() as db:
            db.executemany(_SQL["let_go"], payloads)

    @contextmanager
    def _beside(self) -> Iterator[apsw.Connection]:
        """One transaction, with the owner's connection or, beside another owner, with one of its own."""
        db = self._to_write or connect(self._path, "FULL")
        try:
            with db:
                yield db
        finally:
            if db is not self._to_write:
                db.close()

    def _append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        db = self._owned()
        values = (
            batch.number,
            batch.epoch,
            batch.first,
            batch.last,
            batch.time_ms,
            batch.parent,
            batch.hash,
            batch.body,
        )
        if not attachments:
            db.execute(_SQL["append"], values)
            _check_appended(db, batch)
            return
        with db:
            db.execute(_SQL["append"], values)
            _check_appended(db, batch)
            db.executemany(_SQL["attach"], [(batch.number, each.digest, each.raw) for each in attachments])

    def _close_writer(self) -> None:
        if self._to_write is not None:
            self._to_write.close()
            self._to_write = None
        self._lock.release()

    # ------------------------------------------------------------------------------------ in the reader's thread

    async def _reading(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._reader.do(lambda: work(self._reader_db()))

    def _reader_db(self) -> apsw.Connection:
        if self._to_read is None:
            if not self._path.exists():
                raise Unavailable("ENG-001", f"no journal at {self._path}", "start a node there first")
            db = connect_to_read(self._path)
            if not is_made(db, "journal") and not self._lock.is_free():
                db.close()
                raise Unavailable("ENG-001", f"{self._path} is just being made", "ask again in a moment")
            self._to_read = db
        return self._to_read

    def _close_reader(self) -> None:
        if self._to_read is not None:
            self._to_read.close()
            self._to_read = None


def _tip(db: apsw.Connection) -> Tip:
    row = db.execute(_SQL["tip"]).fetchone()
    return Tip(*as_stored(_TIP, row)) if row else Tip()


def _page(after: BatchNo, last: int, db: apsw.Connection) -> list[Batch]:
    return [Batch(*as_stored(_BATCH, row)) for row in db.execute(_SQL["read"], (after, last, _PAGE))]


def _check_appended(db: apsw.Connection, batch: Batch) -> None:
    if db.changes() != 1:
        raise Fenced(
            "ENG-001",
            f"batch {batch.number} is not the next one: another owner has written",
            "this node stops; the other one holds the journal",
        )


def _lock_soon(file: int) -> None:
    """Whoever only looks whether it is free holds it for a moment (`is_free`): that is no owner yet."""
    for _ in range(_LOOKS - 1):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOOK_AGAIN_S / _LOOKS)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class OwnerLock:
    """An exclusive lock on a file that lasts as long as the process, with the owner's process id for humans."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> None:
        if self._file is not None:
            return
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock_soon(file)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip()
            os.close(file)
            raise Unavailable(
                "ENG-001",
                f"process {holder or '?'} owns {self._path.parent}",
                "stop that node first, or use another folder",
            ) from None
        self._file = file
        with suppress(OSError):  # on a full disk: the lock counts, the number is for humans
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def is_free(self) -> bool:
        """Whether nobody holds it at this moment."""
        if self._file is not None or not self._path.exists():
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
