"""The journal's partitions: made ahead of the batches they will hold, dropped whole when all of these are let go.

`part` says which numbers each one holds, so that the size may change from one release to the next. A partition is
attached, not created in place: that lock lets readers and a held snapshot alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import asyncpg

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.sql.statements import postgres_queries
from holdfast.core.values import BatchNo

PART_BATCHES: Final = 1_000_000
_SQL: Final = postgres_queries("journal")
_SLICE: Final = 10_000
"""Batches deleted in one transaction, where a partition cannot be dropped."""
_WAIT_FOR_READERS: Final = "SET LOCAL lock_timeout = '1s'"
"""Dropping waits for whoever reads, and the next append would wait behind it."""


class Part(NamedTuple):
    """A partition and the numbers it holds: first up to, not including, end."""

    first: int
    end: int


async def part_for(connection: Connection, size: int, number: BatchNo) -> Part:
    """The partition of a batch, made where there is none yet."""
    parts = [Part(first, end) for first, end in await connection.fetch(_SQL["parts"])]
    while not parts or parts[-1].end <= number:
        first = parts[-1].end if parts else 1
        parts.append(Part(first, first + size))
        await _make(connection, *parts[-1])
    return next(part for part in parts if number < part.end)


async def _make(connection: Connection, first: int, end: int) -> None:
    async with connection.transaction():
        for table in ("batch", "attachment"):
            await connection.execute(f"CREATE TABLE {table}_{first} (LIKE {table} INCLUDING ALL)")
            await connection.execute(
                f"ALTER TABLE {table} ATTACH PARTITION {table}_{first} FOR VALUES FROM ({first}) TO ({end})"
            )
        await connection.execute(_SQL["add_part"], first, end)


async def let_go(connection: Connection, until: BatchNo) -> None:
    """Drop whole partitions from the oldest on, delete what is left: at no moment is there a gap."""
    for first, end in await connection.fetch(_SQL["parts"]):
        if end - 1 > until or not await _drop(connection, first):
            break
    at = await connection.fetchval(_SQL["floor"])
    while at < until:
        at = min(at + _SLICE, until)
        async with connection.transaction():
            await connection.execute(_SQL["trim_attachments"], at)
            await connection.execute(_SQL["trim_batches"], at)


async def _drop(connection: Connection, first: int) -> bool:
    """False where somebody reads for so long that deleting is the better way."""
    try:
        async with connection.transaction():
            await connection.execute(_WAIT_FOR_READERS)
            await connection.execute(f"DROP TABLE batch_{first}, attachment_{first}")
            await connection.execute(_SQL["drop_part"], first)
    except asyncpg.LockNotAvailableError:
        return False
    return True
