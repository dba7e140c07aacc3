"""The journal's partitions: created ahead of the batches they will hold, dropped whole when all of these are trimmed.

The table `journal_partition` says which numbers each one holds, so that the size may change from one release to the
next. A partition is attached, not created in place: its lock does not block readers or an open snapshot.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import asyncpg

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.sql.named_queries import postgres_queries
from holdfast.core.base.values import BatchNo

PARTITION_BATCHES: Final = 1_000_000
_SQL: Final = postgres_queries("journal")
_BATCHES_PER_DELETE: Final = 10_000
"""Batches deleted in one transaction if a partition cannot be dropped."""
_WAIT_FOR_READERS: Final = "SET LOCAL lock_timeout = '1s'"
"""DROP waits for readers, and the next append would wait behind it."""


class Partition(NamedTuple):
    """A partition and the numbers it holds: first up to, not including, end."""

    first: int
    end: int


async def ensure_partition(connection: Connection, size: int, number: BatchNo) -> Partition:
    """The partition of a batch; it is created if there is none yet."""
    partitions = [Partition(first, end) for first, end in await connection.fetch(_SQL["partitions"])]
    while not partitions or partitions[-1].end <= number:
        first = partitions[-1].end if partitions else 1
        partitions.append(Partition(first, first + size))
        await _create_partition(connection, *partitions[-1])
    return next(partition for partition in partitions if number < partition.end)


async def _create_partition(connection: Connection, first: int, end: int) -> None:
    async with connection.transaction():
        for table in ("batch", "attachment"):
            await connection.execute(f"CREATE TABLE {table}_{first} (LIKE {table} INCLUDING ALL)")
            await connection.execute(
                f"ALTER TABLE {table} ATTACH PARTITION {table}_{first} FOR VALUES FROM ({first}) TO ({end})"
            )
        await connection.execute(_SQL["add_partition"], first, end)


async def delete_batches(connection: Connection, until: BatchNo) -> None:
    """Drop whole partitions from the oldest on, then delete the rest: at no moment is there a gap."""
    for first, end in await connection.fetch(_SQL["partitions"]):
        if end - 1 > until or not await _drop_partition(connection, first):
            break
    trimmed = await connection.fetchval(_SQL["trimmed_until"])
    while trimmed < until:
        trimmed = min(trimmed + _BATCHES_PER_DELETE, until)
        async with connection.transaction():
            await connection.execute(_SQL["trim_attachments"], trimmed)
            await connection.execute(_SQL["trim_batches"], trimmed)


async def _drop_partition(connection: Connection, first: int) -> bool:
    """False if a reader holds the partition for so long that deleting rows is better."""
    try:
        async with connection.transaction():
            await connection.execute(_WAIT_FOR_READERS)
            await connection.execute(f"DROP TABLE batch_{first}, attachment_{first}")
            await connection.execute(_SQL["drop_partition"], first)
    except asyncpg.LockNotAvailableError:
        return False
    return True
