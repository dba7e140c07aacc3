"""Every store there is, real and simulated, so that one suite states what a store means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.postgres.server import Address, Server
from tests.simulation.journal import Disk, SimulatedJournal
from tests.simulation.tables import SimulatedTables

from holdfast.adapters.postgres.journal import PostgresJournal
from holdfast.adapters.postgres.tables import PostgresTables
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.ports import Journal, TableWriter

OpenJournal = Callable[[], Journal]
"""Opens the same stored journal again, as another process would."""
OpenTables = Callable[[], TableWriter]
T = TypeVar("T", Journal, TableWriter)
PATIENCE_S = 30.0
"""How long a new owner waits for a backend that is just ending: on a busy machine that may take a while."""
OWNED_WAIT_S = 0.5
"""How long one waits that is to be turned away."""


class Place:
    """Where a test's store lies: its own folder, or its own schema on a server that starts when asked for."""

    def __init__(self, folder: Path, server: Callable[[], Server]) -> None:
        self.folder, self.server = folder, server
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        self._address = self._address or self.server().address()
        return self._address


def sqlite_journal(place: Place) -> OpenJournal:
    return lambda: SqliteJournal(place.folder)


def postgres_journal(place: Place) -> OpenJournal:
    address = place.address
    return lambda: PostgresJournal(*address, lock_wait_s=PATIENCE_S)


def simulated_journal(_: Place) -> OpenJournal:
    disk = Disk()
    return lambda: SimulatedJournal(disk)


def sqlite_tables(place: Place) -> OpenTables:
    return lambda: SqliteTables(place.folder)


def postgres_tables(place: Place) -> OpenTables:
    address = place.address
    return lambda: PostgresTables(*address, lock_wait_s=PATIENCE_S)


def simulated_tables(_: Place) -> OpenTables:
    tables = SimulatedTables()
    return lambda: tables


def impatient(store: T) -> T:
    """The same store for a second process, which does not wait until the owner is gone."""
    if isinstance(store, PostgresJournal | PostgresTables):
        store._lock_wait_s = OWNED_WAIT_S
    return store


JOURNALS = {"sqlite": sqlite_journal, "postgres": postgres_journal, "simulated": simulated_journal}
TABLES = {"sqlite": sqlite_tables, "postgres": postgres_tables, "simulated": simulated_tables}
