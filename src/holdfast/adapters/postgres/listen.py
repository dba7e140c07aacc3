"""Hears when a batch is durable: LISTEN on a connection of its own, shared by all who wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from holdfast.adapters.postgres.connect import Connection, Database, hang_up

LOOK_AGAIN_S: Final = 1.0
"""A notification that is lost with its connection delays a follower by this much and no more."""


class Bell:
    """Rings at every batch; whoever asks for the next ring must look at the journal after asking, not before."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._next = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    async def next_ring(self) -> asyncio.Event:
        """Set at the first batch that becomes durable after this call returned."""
        async with self._one_at_a_time:
            if self._connection is None or self._connection.is_closed():
                await self._listen()
        return self._next

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await hang_up(connection)

    async def _listen(self) -> None:
        connection = await self._database.connect("follower")
        try:
            with self._database.named():
                await connection.add_listener(self._database.channel, self._ring)
                connection.add_termination_listener(self._ring)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection

    def _ring(self, *_: object) -> None:
        rung, self._next = self._next, asyncio.Event()
        rung.set()


async def heard(ring: asyncio.Event) -> None:
    """Wait for the ring, but not for ever."""
    with suppress(TimeoutError):  # not wait_for: on Python 3.11 it drops a cancelling that comes with the ring
        async with asyncio.timeout(LOOK_AGAIN_S):
            await ring.wait()
