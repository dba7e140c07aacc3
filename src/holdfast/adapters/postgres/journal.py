"""The journal on PostgreSQL: one row per batch, one round trip per append, one owner by lock and by number."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import asyncpg

from holdfast.adapters.postgres.append import Appender
from holdfast.adapters.postgres.connect import COMMAND_S, CONNECT_S, Connection, Database, ReaderPool, close_connection
from holdfast.adapters.postgres.integrity import find_damage
from holdfast.adapters.postgres.listen import JournalNotifier, wait_notified
from holdfast.adapters.postgres.lock import evict_holder, last_beat, take_lock
from holdfast.adapters.postgres.migrate import check_schema, migrate
from holdfast.adapters.postgres.partitions import PARTITION_BATCHES, delete_batches
from holdfast.adapters.postgres.server import check_server
from holdfast.adapters.postgres.settings import SCHEMA
from holdfast.adapters.sql.journal_rows import batch_from_row, head_from_row
from holdfast.adapters.sql.named_queries import postgres_queries
from holdfast.core.base.errors import Fenced, Unavailable
from holdfast.core.base.event import Attachment, Batch, JournalHead
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.ports import OwnerBeat, StoredPayload

LOCK_WAIT_S: Final = 3.0
"""How long `acquire` waits for a backend that is ending, such as that of a node that was just killed."""
_SQL: Final = postgres_queries("journal")
_PAGE: Final = 64
_NUMBER_MAX: Final = 2**63 - 1
_LOCK_TIMEOUT: Final = "10s"
"""How often a standby retries, so that it notices a server that vanished silently."""


class PostgresJournal:
    """ENG-001 on PostgreSQL. The lock keeps a second owner out (see `lock`); the batch number stops one that got past.

    After an append with an unknown outcome the connection is cut, and nothing is appended before the next `acquire`.
    """

    def __init__(
        self,
        dsn: str,
        schema: str = SCHEMA,
        *,
        allow_unsafe: bool = False,
        connect_s: float = CONNECT_S,
        command_s: float = COMMAND_S,
        lock_wait_s: float = LOCK_WAIT_S,
        partition_batches: int = PARTITION_BATCHES,
    ) -> None:
        self._database = Database(dsn, schema, connect_s=connect_s, command_s=command_s)
        self._allow_unsafe, self._lock_wait_s, self._partition_batches = allow_unsafe, lock_wait_s, partition_batches
        self._readers = ReaderPool(
            self._database, "reader", 1, partial(check_schema, database=self._database, name="journal")
        )
        self._notifier = JournalNotifier(self._database)
        self._appender: Appender | None = None

    # ------------------------------------------------------------------------------------ the owner

    async def acquire(self) -> JournalHead:
        await self._release()
        connection = await self._database.connect("owner")
        try:
            with self._database.translate_errors():
                head = await self._acquire_lock(connection)
                appender = Appender(connection, self._database.channel, self._partition_batches)
                await appender.prepare(BatchNo(head.number + 1))
        except BaseException:
            connection.terminate()
            raise
        self._appender = appender
        return head

    async def _acquire_lock(self, connection: Connection) -> JournalHead:
        await check_server(connection, allow_unsafe=self._allow_unsafe)
        what = f"the journal in schema {self._database.schema}"
        await take_lock(connection, self._database.lock_key("owner"), self._lock_wait_s, what)
        await migrate(connection, self._database, "journal")
        return await _read_head(connection)

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        appender = self._require_appender()
        try:
            with self._database.translate_errors():
                await appender.append(batch, attachments)
        except Fenced:
            raise
        except BaseException:
            self._appender = None
            appender.connection.terminate()
            raise

    async def heartbeat(self) -> None:
        """Any statement will do: the server notes when a session was last active, so nothing is written at all.

        An append is such a statement; while one hangs, the session shows it.
        """
        appender = self._appender
        if appender is None or appender.is_busy:
            return
        try:
            with self._database.translate_errors():
                await appender.beat()
        except BaseException:
            appender.connection.terminate()
            if self._appender is appender:
                self._appender = None
            raise

    async def append_packed(self, pack: Callable[[], Batch], attachments: Sequence[Attachment]) -> Batch:
        batch = pack()  # the connection belongs to the event loop: another thread would only add a hand-over
        await self.append(batch, attachments)
        return batch

    async def trim(self, until: BatchNo) -> None:
        last = (await self.tip()).number
        connection = await self._database.connect("trimmer")  # its own connection: appends continue meanwhile
        try:
            with self._database.translate_errors():
                await delete_batches(connection, BatchNo(min(until, last - 1)))
        finally:
            await close_connection(connection)

    def _require_appender(self) -> Appender:
        if self._appender is None:
            raise Unavailable("ENG-001", "the journal is not owned")
        return self._appender

    async def _release(self) -> None:
        if self._appender is None:
            return
        connection, self._appender = self._appender.connection, None
        with suppress(Exception):  # closing the connection releases the lock too, only later
            await connection.execute("SELECT pg_advisory_unlock_all()", timeout=1)
        await close_connection(connection)

    # ------------------------------------------------------------------------------------ every node

    async def wait_until_unowned(self) -> None:
        if self._appender is not None and not self._appender.connection.is_closed():
            return
        connection = await self._database.connect("standby", lock_timeout=_LOCK_TIMEOUT)
        try:
            with self._database.translate_errors():
                await _wait_for_lock(connection, self._database.lock_key("owner"))
        finally:
            await close_connection(connection)

    async def owner_beat(self) -> OwnerBeat | None:
        async with self._readers.use() as connection:
            return await last_beat(connection, self._database.lock_key("owner"))

    async def evict_owner(self, seen: OwnerBeat) -> None:
        async with self._readers.use() as connection:
            await evict_holder(connection, self._database.lock_key("owner"), seen)

    async def wall_ms(self) -> int | None:
        async with self._readers.use() as connection:
            return int(await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"))

    async def tip(self) -> JournalHead:
        async with self._readers.use() as connection:
            return await _read_head(connection)

    async def wait_after(self, number: BatchNo) -> None:
        while True:
            notification = await self._notifier.next_notification()
            if (await self.tip()).number > number:
                return
            await wait_notified(notification)

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        last = _NUMBER_MAX if until is None else until
        while True:
            async with self._readers.use() as connection:
                page = [batch_from_row(row) for row in await connection.fetch(_SQL["read"], after, last, _PAGE)]
            for batch in page:
                yield batch
            if len(page) < _PAGE:
                return
            after = page[-1].number

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        async with self._readers.use() as connection:
            number: BatchNo | None = await connection.fetchval(_SQL["batch_of"], event)
            return number

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        async with self._readers.use() as connection:
            raw: bytes | None = await connection.fetchval(_SQL["attachment"], batch, digest)
            return raw

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        async with self._readers.use() as connection:
            return [
                Attachment(Digest(digest), raw) for digest, raw in await connection.fetch(_SQL["attachments"], batch)
            ]

    async def stored_payloads(self, after: EventNo, until: EventNo) -> list[StoredPayload]:
        async with self._readers.use() as connection:
            return [
                (BatchNo(row[0]), Digest(row[1]), row[2])
                for row in await connection.fetch(_SQL["stored_payloads"], after, until)
            ]

    async def delete_payloads(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        async with self._readers.use() as connection, connection.transaction():
            await connection.executemany(_SQL["delete_payload"], payloads)

    async def trimmed_until(self) -> BatchNo:
        async with self._readers.use() as connection:
            return BatchNo(await connection.fetchval(_SQL["trimmed_until"]))

    async def faults(self) -> list[str]:
        async with self._readers.use() as connection:
            return await find_damage(connection, self._database.schema)

    async def close(self) -> None:
        await self._release()
        await self._notifier.close()
        await self._readers.close()


async def _read_head(connection: Connection) -> JournalHead:
    return head_from_row(await connection.fetchrow(_SQL["head"]))


async def _wait_for_lock(connection: Connection, key: int) -> None:
    """Wait in the lock's own queue: shared and for one statement only, so that a waiting standby blocks no owner."""
    while True:
        with suppress(asyncpg.LockNotAvailableError):
            await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", key)
            return
