"""How the owner adds batches: one statement, guarded by number and parent hash, that also rings the bell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.postgres.parts import Part, part_for
from holdfast.adapters.sql.statements import postgres_queries
from holdfast.core.event import Attachment, Batch
from holdfast.core.refusal import Fenced, Unavailable
from holdfast.core.values import BatchNo

_SQL: Final = postgres_queries("journal")
_HARMLESS: Final = {"asyncQueueFillWarning"}
"""Where in the server a warning comes from that says nothing about a commit: many notifications wait for a listener."""


class Appender:
    """One ownership of the journal: its connection, the partition in use and the statements prepared for it."""

    _part: Part
    _anywhere: Any
    _within: Any

    def __init__(self, connection: Connection, channel: str, part_batches: int) -> None:
        self.connection = connection
        self._channel, self._part_batches = channel, part_batches
        self._warning = ""

    async def prepare(self, number: BatchNo) -> None:
        """Be ready for the batch with this number."""
        self.connection.add_log_listener(self._note_warning)
        self._anywhere = await self.connection.prepare(_SQL["append"])
        await self._turn_to(number)
        await self.connection.execute("SELECT")  # the driver leaves a transaction open after preparing

    async def add(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        """Durable when this returns; Fenced where the number is taken or the batch before it is another one."""
        if batch.number == self._part.end:
            await self._turn_to(batch.number)
        self._warning = ""
        if not attachments:
            await self._add_batch(batch)
        else:
            async with self.connection.transaction():
                await self._add_batch(batch)
                rows = [(batch.number, each.digest, each.raw) for each in attachments]
                await self.connection.executemany(_SQL["attach"], rows)
        if self._warning:
            raise Unavailable("ENG-002", f"PostgreSQL: {self._warning}", "the commit came with a warning: look again")

    async def _turn_to(self, number: BatchNo) -> None:
        self._part = await part_for(self.connection, self._part_batches, number)
        self._within = await self.connection.prepare(_SQL["append_within"].format(part=f"batch_{self._part.first}"))

    async def _add_batch(self, batch: Batch) -> None:
        each = batch
        values = (each.number, each.epoch, each.first, each.last, each.time_ms, each.parent, each.hash, each.body)
        append = self._within if self._part.first < batch.number < self._part.end else self._anywhere
        try:
            if await append.fetchrow(*values, self._channel) is not None:
                return
        except asyncpg.UniqueViolationError:
            pass
        raise Fenced(
            "ENG-001",
            f"batch {batch.number} is not the next one: another owner has written",
            "this node stops; the other one holds the journal",
        )

    def _note_warning(self, _: object, message: Any) -> None:
        """A commit whose wait for a standby was cancelled ends well, with a warning: it must not be confirmed."""
        if message.severity_en == "WARNING" and message.server_source_function not in _HARMLESS:
            self._warning = message.message
