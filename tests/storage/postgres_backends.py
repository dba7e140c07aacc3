"""Finds, blocks, kills and waits for the backends of a PostgreSQL server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.storage.test_journal import WITHIN_S

from holdfast.adapters.postgres.journal import PostgresJournal


async def backends(admin: Any, schema: str, purpose: str) -> list[int]:
    name = f"holdfast {schema} {purpose}"
    return [row[0] for row in await admin.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = $1", name)]


async def kill(admin: Any, schema: str, purpose: str) -> None:
    for pid in await backends(admin, schema, purpose):
        await admin.execute("SELECT pg_terminate_backend($1)", pid)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await condition():
            await asyncio.sleep(0.01)


def owner_of(journal: PostgresJournal) -> int:
    """The backend that owns; one that is just ending, lock and all, may still be listed beside it."""
    assert journal._appender is not None
    return int(journal._appender.connection.get_server_pid())


@asynccontextmanager
async def table_locked(admin: Any, table: str) -> AsyncIterator[None]:
    """Writers of this table wait until this ends."""
    async with admin.transaction():
        await admin.execute(f"LOCK TABLE {table} IN SHARE MODE")
        yield


async def is_blocked(admin: Any, schema: str) -> bool:
    name = f"holdfast {schema} owner"
    found = await admin.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", name
    )
    return bool(found)
