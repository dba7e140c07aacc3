"""Connections as the house wants them: one schema, no surprises from the role's settings, never silent for ever."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from typing import Any, Final

import asyncpg

from holdfast.adapters.postgres.faults import named
from holdfast.adapters.postgres.settings import COMMAND_MS, CONNECT_MS, SCHEMA, SCHEMA_PATTERN, Secret
from holdfast.core.refusal import Unavailable

Connection = Any
"""An asyncpg.Connection: the driver has no types."""
CONNECT_S: Final = CONNECT_MS / 1000
COMMAND_S: Final = COMMAND_MS / 1000
_HANG_UP_S: Final = 2.0
_KEEPALIVE: Final = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""A backend whose client's machine is gone ends after 25 s, and with it the lock it holds; the default is two hours."""
_SESSION: Final = _KEEPALIVE | {
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "jit": "off",
    "lock_timeout": "0",
    "statement_timeout": "0",
}
"""What a role's defaults must not decide for us: an idle owner stays the owner, our own time limit is the only one."""


class Database:
    """One network's place on a server: where it is, its schema, and how long we wait for it."""

    def __init__(
        self, dsn: str, schema: str = SCHEMA, *, connect_s: float = CONNECT_S, command_s: float = COMMAND_S
    ) -> None:
        if not re.fullmatch(SCHEMA_PATTERN, schema):
            raise Unavailable(
                "SEC-001", f"{schema!r:.60} cannot be a schema", "1–40 of a-z 0-9 _, not beginning with a digit or pg_"
            )
        self.schema = schema
        self.channel = f"{schema}.journal"
        self._secret = Secret(dsn)
        self._connect_s, self._command_s = connect_s, command_s

    def key(self, purpose: str) -> int:
        """The advisory lock for a purpose within this schema: 63 bits of a hash; locks are per database."""
        return int.from_bytes(sha256(f"holdfast.{purpose}.{self.schema}".encode()).digest()[:8], "big") >> 1

    @contextmanager
    def named(self) -> Iterator[None]:
        """Whatever the server, the driver or the network throws, as Unavailable or Corrupt."""
        with named(self._secret):
            yield

    async def connect(self, purpose: str, **settings: str) -> Connection:
        """A new connection whose unqualified names are those of our schema."""
        name = {"application_name": f"holdfast {self.schema} {purpose}", "search_path": f'"{self.schema}"'}
        with self.named():
            try:
                connection = await asyncpg.connect(
                    self._secret.reveal(),
                    timeout=self._connect_s,
                    command_timeout=self._command_s,
                    server_settings=_SESSION | name | settings,  # above what role and database say
                )
            except ValueError as fault:
                raise asyncpg.ClientConfigurationError("DSN") from fault
            _keep_alive(connection)
            return connection


class Lines:
    """A few connections, opened when needed; each is used by one at a time and thrown away after any fault."""

    def __init__(
        self, database: Database, purpose: str, count: int, prepare: Callable[[Connection], Awaitable[None]]
    ) -> None:
        self._database, self._purpose, self._prepare = database, purpose, prepare
        self._turns = asyncio.Semaphore(count)
        self._idle: list[Connection] = []
        self._is_closed = False

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        async with self._turns:
            connection = await self._take()
            try:
                with self._database.named():
                    yield connection
            except BaseException:
                connection.terminate()
                raise
            self._idle.append(connection)
            if self._is_closed:
                await self.close()

    async def close(self) -> None:
        """Hang up; what is still in use follows when it is done."""
        self._is_closed = True
        while self._idle:
            await hang_up(self._idle.pop())

    async def _take(self) -> Connection:
        while self._idle:
            if not (connection := self._idle.pop()).is_closed():
                return connection
        connection = await self._database.connect(self._purpose)
        try:
            with self._database.named():
                await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection


async def drop_schema(dsn: str, schema: str) -> None:
    """Let go of a whole network: journal, tables, everything."""
    database = Database(dsn, schema)
    connection = await database.connect("drop")
    try:
        with database.named():
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    finally:
        await hang_up(connection)


async def hang_up(connection: Connection) -> None:
    """Say goodbye, and do not wait long for it."""
    with suppress(Exception):
        await connection.close(timeout=_HANG_UP_S)
    if not connection.is_closed():
        connection.terminate()


def _keep_alive(connection: Connection) -> None:
    """The same watch from our side; over a Unix socket there is nothing to watch."""
    transport = getattr(connection, "_transport", None)
    line = transport.get_extra_info("socket") if transport is not None else None
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
