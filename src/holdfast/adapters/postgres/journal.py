"""The journal on PostgreSQL: one row a batch, one round trip an append, one owner by lock and by number."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import asyncpg

from holdfast.adapters.postgres.append import Appender
from holdfast.adapters.postgres.connect import COMMAND_S, CONNECT_S, Connection, Database, Lines, hang_up
from holdfast.adapters.postgres.examine import faults
from holdfast.adapters.postgres.listen import Bell, heard
from holdfast.adapters.postgres.lock import take_lock
from holdfast.adapters.postgres.migrate import check_schema, migrate
from holdfast.adapters.postgres.parts import PART_BATCHES, let_go
from holdfast.adapters.postgres.server import check_server
from holdfast.adapters.postgres.settings import SCHEMA
from holdfast.adapters.sql.statements import postgres_queries
from holdfast.core.event import Attachment, Batch, Tip
from holdfast.core.refusal import Fenced, Unavailable
from holdfast.core.values import BatchNo, Digest, EventNo
from holdfast.ports import Lying

PATIENCE_S: Final = 3.0
"""How long `own` waits for a backend that is just ending: that of a node which was killed a moment ago."""
_SQL: Final = postgres_queries("journal")
_LYING: Final = _SQL["attached"]
_PAGE: Final = 64
_NUMBER_MAX: Final = 2**63 - 1
_WAIT_SLICE: Final = "10s"
"""A standby asks again this often, so that a server which vanished silently is noticed."""


class PostgresJournal:
    """ENG-001 on PostgreSQL. The lock keeps a second owner out (see `lock`); the batch number stops one that got past.

    After an append whose outcome is not known the connection is cut and nothing more is appended before `own`.
    """

    def __init__(
        self,
        dsn: str,
        schema: str = SCHEMA,
        *,
        allow_unsafe: bool = False,
        connect_s: float = CONNECT_S,
        command_s: float = COMMAND_S,
        patience_s: float = PATIENCE_S,
        part_batches: int = PART_BATCHES,
    ) -> None:
        self._database = Database(dsn, schema, connect_s=connect_s, command_s=command_s)
        self._allow_unsafe, self._patience_s, self._part_batches = allow_unsafe, patience_s, part_batches
        self._readers = Lines(
            self._database, "reader", 1, partial(check_schema, database=self._database, name="journal")
        )
        self._bell = Bell(self._database)
        self._owned: Appender | None = None

    # ------------------------------------------------------------------------------------ the owner

    async def own(self) -> Tip:
        await self._disown()
        connection = await self._database.connect("owner")
        try:
            with self._database.named():
                tip = await self._take(connection)
                owned = Appender(connection, self._database.channel, self._part_batches)
                await owned.prepare(BatchNo(tip.number + 1))
        except BaseException:
            connection.terminate()
            raise
        self._owned = owned
        return tip

    async def _take(self, connection: Connection) -> Tip:
        await check_server(connection, allow_unsafe=self._allow_unsafe)
        what = f"the journal in schema {self._database.schema}"
        await take_lock(connection, self._database.key("owner"), self._patience_s, what)
        await migrate(connection, self._database, "journal")
        return await _tip(connection)

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        owned = self._owner()
        try:
            with self._database.named():
                await owned.add(batch, attachments)
        except Fenced:
            raise
        except BaseException:
            self._owned = None
            owned.connection.terminate()
            raise

    async def trim(self, until: BatchNo) -> None:
        last = (await self.tip()).number
        connection = await self._database.connect("trimmer")  # of its own: appends go on meanwhile
        try:
            with self._database.named():
                await let_go(connection, BatchNo(min(until, last - 1)))
        finally:
            await hang_up(connection)

    def _owner(self) -> Appender:
        if self._owned is None:
            raise Unavailable("ENG-001", "the journal is not owned")
        return self._owned

    async def _disown(self) -> None:
        if self._owned is None:
            return
        connection, self._owned = self._owned.connection, None
        with suppress(Exception):  # the lock is gone with the connection in any case, only later
            await connection.execute("SELECT pg_advisory_unlock_all()", timeout=1)
        await hang_up(connection)

    # ------------------------------------------------------------------------------------ everybody

    async def wait_free(self) -> None:
        if self._owned is not None and not self._owned.connection.is_closed():
            return
        connection = await self._database.connect("standby", lock_timeout=_WAIT_SLICE)
        try:
            with self._database.named():
                await _wait_for(connection, self._database.key("owner"))
        finally:
            await hang_up(connection)

    async def tip(self) -> Tip:
        async with self._readers.use() as connection:
            return await _tip(connection)

    async def wait_beyond(self, number: BatchNo) -> None:
        while True:
            ring = await self._bell.next_ring()
            if (await self.tip()).number > number:
                return
            await heard(ring)

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        last = _NUMBER_MAX if until is None else until
        while True:
            async with self._readers.use() as connection:
                page = [Batch(*row) for row in await connection.fetch(_SQL["read"], after, last, _PAGE)]
            for batch in page:
                yield batch
            if len(page) < _PAGE:
                return
            after = page[-1].number

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        async with self._readers.use() as connection:
            found: BatchNo | None = await connection.fetchval(_SQL["batch_of"], event)
            return found

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        async with self._readers.use() as connection:
            found: bytes | None = await connection.fetchval(_SQL["attachment"], batch, digest)
            return found

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        async with self._readers.use() as connection:
            return [
                Attachment(Digest(digest), raw) for digest, raw in await connection.fetch(_SQL["attachments"], batch)
            ]

    async def attached(self, after: EventNo, until: EventNo) -> list[Lying]:
        async with self._readers.use() as connection:
            return [(BatchNo(row[0]), Digest(row[1]), row[2]) for row in await connection.fetch(_LYING, after, until)]

    async def let_go(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        async with self._readers.use() as connection, connection.transaction():
            await connection.executemany(_SQL["let_go"], payloads)

    async def floor(self) -> BatchNo:
        async with self._readers.use() as connection:
            return BatchNo(await connection.fetchval(_SQL["floor"]))

    async def faults(self) -> list[str]:
        async with self._readers.use() as connection:
            return await faults(connection, self._database.schema)

    async def close(self) -> None:
        await self._disown()
        await self._bell.close()
        await self._readers.close()


async def _tip(connection: Connection) -> Tip:
    row = await connection.fetchrow(_SQL["tip"])
    return Tip(*row) if row else Tip()


async def _wait_for(connection: Connection, key: int) -> None:
    """Wait in the lock's own queue; shared and only for a statement, so that nobody is kept out by who waits."""
    while True:
        with suppress(asyncpg.LockNotAvailableError):
            await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", key)
            return
