"""Every store there is, real and simulated, so that one suite states what a store means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.postgres.server import Address, Server
from tests.simulated.journal import Disk, SimulatedJournal
from tests.simulated.tables import SimulatedTables

from holdfast.adapters.postgres.journal import PostgresJournal
from holdfast.adapters.postgres.tables import PostgresTables
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.ports import Journal, Tables

OpenJournal = Callable[[], Journal]
"""Opens the same stored journal again, as another process would."""
OpenTables = Callable[[], Tables]
PATIENCE_S = 0.5
"""How long a second owner waits in a test before it is turned away."""


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
    return lambda: PostgresJournal(*address, patience_s=PATIENCE_S)


def simulated_journal(_: Place) -> OpenJournal:
    disk = Disk()
    return lambda: SimulatedJournal(disk)


def sqlite_tables(place: Place) -> OpenTables:
    return lambda: SqliteTables(place.folder)


def postgres_tables(place: Place) -> OpenTables:
    address = place.address
    return lambda: PostgresTables(*address, patience_s=PATIENCE_S)


def simulated_tables(_: Place) -> OpenTables:
    tables = SimulatedTables()
    return lambda: tables


JOURNALS = {"sqlite": sqlite_journal, "postgres": postgres_journal, "simulated": simulated_journal}
TABLES = {"sqlite": sqlite_tables, "postgres": postgres_tables, "simulated": simulated_tables}
