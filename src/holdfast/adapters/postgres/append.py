"""How the owner appends batches: one statement, guarded by number and parent hash, that also notifies followers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.postgres.partitions import Partition, ensure_partition
from holdfast.adapters.sql.journal_rows import batch_values
from holdfast.adapters.sql.named_queries import postgres_queries
from holdfast.core.base.errors import Fenced, Unavailable
from holdfast.core.base.event import Attachment, Batch
from holdfast.core.base.values import BatchNo

_SQL: Final = postgres_queries("journal")
_HARMLESS_WARNINGS: Final = {"asyncQueueFillWarning"}
"""Server functions whose warnings do not concern a commit: the queue of notifications fills up."""


class Appender:
    """One ownership of the journal: its connection, the current partition and the statements prepared for it."""

    _partition: Partition
    _append_anywhere: Any
    _append_in_partition: Any

    def __init__(self, connection: Connection, channel: str, partition_batches: int) -> None:
        self.connection = connection
        self._channel, self._partition_batches = channel, partition_batches
        self._warning = ""
        self._lock = asyncio.Lock()
        """A connection runs one statement at a time: an append or a heartbeat."""

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    async def beat(self) -> None:
        async with self._lock:
            await self.connection.execute("SELECT")

    async def prepare(self, number: BatchNo) -> None:
        """Prepare the statements for the batch with this number."""
        self.connection.add_log_listener(self._note_warning)
        self._append_anywhere = await self.connection.prepare(_SQL["append"])
        await self._use_partition(number)
        await self.connection.execute("SELECT")  # the driver leaves a transaction open after preparing

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        """Durable when this returns; Fenced if the number is taken or the parent is not the last batch."""
        async with self._lock:
            if batch.number == self._partition.end:
                await self._use_partition(batch.number)
            self._warning = ""
            if not attachments:
                await self._add_batch(batch)
            else:
                async with self.connection.transaction():
                    await self._add_batch(batch)
                    rows = [(batch.number, attachment.digest, attachment.raw) for attachment in attachments]
                    await self.connection.executemany(_SQL["attach"], rows)
        if self._warning:
            raise Unavailable(
                "ENG-002", f"PostgreSQL: {self._warning}", "the commit came with a warning: its outcome is read again"
            )

    async def _use_partition(self, number: BatchNo) -> None:
        self._partition = await ensure_partition(self.connection, self._partition_batches, number)
        self._append_in_partition = await self.connection.prepare(
            _SQL["append_in_partition"].format(partition=f"batch_{self._partition.first}")
        )

    async def _add_batch(self, batch: Batch) -> None:
        append = (
            self._append_in_partition
            if self._partition.first < batch.number < self._partition.end
            else self._append_anywhere
        )
        try:
            if await append.fetchrow(*batch_values(batch), self._channel) is not None:
                return
        except asyncpg.UniqueViolationError:
            pass
        raise Fenced(
            "ENG-001",
            f"batch {batch.number} is not the next one: another owner has written",
            "this node stops; the other one holds the journal",
        )

    def _note_warning(self, _: object, message: Any) -> None:
        """A commit whose wait for a standby was cancelled succeeds with a warning: it must not be confirmed."""
        if message.severity_en == "WARNING" and message.server_source_function not in _HARMLESS_WARNINGS:
            self._warning = message.message
