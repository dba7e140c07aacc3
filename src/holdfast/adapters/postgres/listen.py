"""Notifies waiters when a batch is durable: LISTEN on a connection of its own, shared by all waiters."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from holdfast.adapters.postgres.connect import Connection, Database, close_connection

RECHECK_S: Final = 1.0
"""A notification that is lost with its connection delays a follower by at most this."""


class JournalNotifier:
    """Notifies at every batch; a caller must read the journal after it asked for the next notification, not before."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._next_event = asyncio.Event()
        self._lock = asyncio.Lock()

    async def next_notification(self) -> asyncio.Event:
        """Set at the first batch that becomes durable after this call returned."""
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                await self._listen()
        return self._next_event

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await close_connection(connection)

    async def _listen(self) -> None:
        connection = await self._database.connect("follower")
        try:
            with self._database.translate_errors():
                await connection.add_listener(self._database.channel, self._notify)
                connection.add_termination_listener(self._notify)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection

    def _notify(self, *_: object) -> None:
        event, self._next_event = self._next_event, asyncio.Event()
        event.set()


async def wait_notified(notification: asyncio.Event) -> None:
    """Wait for the notification, with a time limit."""
    # Not wait_for: on Python 3.11 it drops a cancellation that arrives with the notification.
    with suppress(TimeoutError):
        async with asyncio.timeout(RECHECK_S):
            await notification.wait()
