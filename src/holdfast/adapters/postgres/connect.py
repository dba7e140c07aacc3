"""Connections with the project's settings: one schema, independent of the role's defaults, with time limits."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from typing import Any, Final

import asyncpg

from holdfast.adapters.postgres.errors import translate_errors
from holdfast.adapters.postgres.settings import COMMAND_MS, CONNECT_MS, SCHEMA, SCHEMA_PATTERN, Secret
from holdfast.core.base.errors import Unavailable

Connection = Any
"""An asyncpg.Connection: the driver has no types."""
CONNECT_S: Final = CONNECT_MS / 1000
COMMAND_S: Final = COMMAND_MS / 1000
_CLOSE_S: Final = 2.0
_KEEPALIVE: Final = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""A backend whose client machine has vanished ends after 25 s and releases its lock; the default is two hours."""
_SESSION: Final = _KEEPALIVE | {
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "jit": "off",
    "lock_timeout": "0",
    "statement_timeout": "0",
}
"""Overrides of the role's defaults: an idle owner stays the owner, and only our own time limits apply."""


class Database:
    """One network's database: its address, its schema and the time limits."""

    def __init__(
        self, dsn: str, schema: str = SCHEMA, *, connect_s: float = CONNECT_S, command_s: float = COMMAND_S
    ) -> None:
        if not re.fullmatch(SCHEMA_PATTERN, schema):
            raise Unavailable(
                "SEC-001",
                f"{schema!r:.60} cannot be a schema",
                "use 1–40 of a-z 0-9 _, not starting with a digit or pg_",
            )
        self.schema = schema
        self.channel = f"{schema}.journal"
        self._secret = Secret(dsn)
        self._connect_s, self._command_s = connect_s, command_s

    def lock_key(self, purpose: str) -> int:
        """The key of the advisory lock for a purpose in this schema: 63 bits of a hash. Locks are per database."""
        return int.from_bytes(sha256(f"holdfast.{purpose}.{self.schema}".encode()).digest()[:8], "big") >> 1

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Errors of the server, the driver and the network become Unavailable or Corrupt."""
        with translate_errors(self._secret):
            yield

    async def connect(self, purpose: str, **settings: str) -> Connection:
        """A new connection whose unqualified names resolve to our schema."""
        name = {"application_name": f"holdfast {self.schema} {purpose}", "search_path": f'"{self.schema}"'}
        with self.translate_errors():
            try:
                connection = await asyncpg.connect(
                    self._secret.reveal(),
                    timeout=self._connect_s,
                    command_timeout=self._command_s,
                    server_settings=_SESSION | name | settings,  # these override the role and the database
                )
            except ValueError as fault:
                raise asyncpg.ClientConfigurationError("DSN") from fault
            _enable_keepalive(connection)
            return connection


class ReaderPool:
    """A few connections, opened on demand; each has one user at a time and is discarded after any fault."""

    def __init__(
        self, database: Database, purpose: str, count: int, prepare: Callable[[Connection], Awaitable[None]]
    ) -> None:
        self._database, self._purpose, self._prepare = database, purpose, prepare
        self._slots = asyncio.Semaphore(count)
        self._idle: list[Connection] = []
        self._is_closed = False

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        async with self._slots:
            connection = await self._idle_or_new()
            try:
                with self._database.translate_errors():
                    yield connection
            except BaseException:
                connection.terminate()
                raise
            self._idle.append(connection)
            if self._is_closed:
                await self.close()

    async def close(self) -> None:
        """Close the idle connections; those in use are closed when they are returned."""
        self._is_closed = True
        while self._idle:
            await close_connection(self._idle.pop())

    async def _idle_or_new(self) -> Connection:
        while self._idle:
            if not (connection := self._idle.pop()).is_closed():
                return connection
        connection = await self._database.connect(self._purpose)
        try:
            with self._database.translate_errors():
                await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection


async def drop_schema(dsn: str, schema: str) -> None:
    """Delete a whole network: journal and tables."""
    database = Database(dsn, schema)
    connection = await database.connect("drop")
    try:
        with database.translate_errors():
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    finally:
        await close_connection(connection)


async def close_connection(connection: Connection) -> None:
    """Close a connection in the protocol's way, with a short time limit."""
    with suppress(Exception):
        await connection.close(timeout=_CLOSE_S)
    if not connection.is_closed():
        connection.terminate()


def _enable_keepalive(connection: Connection) -> None:
    """Keepalive from our side; a Unix socket needs none."""
    transport = getattr(connection, "_transport", None)
    tcp = transport.get_extra_info("socket") if transport is not None else None
    if tcp is None or tcp.family not in (socket.AF_INET, socket.AF_INET6):
        return
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            tcp.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
