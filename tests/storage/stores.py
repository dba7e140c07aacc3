"""Every store there is, real and simulated, so that one suite states what a store means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.simulated.journal import Disk, SimulatedJournal
from tests.simulated.tables import SimulatedTables

from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.ports import Journal, Tables

OpenJournal = Callable[[], Journal]
"""Opens the same stored journal again, as another process would."""
OpenTables = Callable[[], Tables]


def sqlite_journal(folder: Path) -> OpenJournal:
    return lambda: SqliteJournal(folder)


def simulated_journal(_: Path) -> OpenJournal:
    disk = Disk()
    return lambda: SimulatedJournal(disk)


def sqlite_tables(folder: Path) -> OpenTables:
    return lambda: SqliteTables(folder)


def simulated_tables(_: Path) -> OpenTables:
    tables = SimulatedTables()
    return lambda: tables


JOURNALS = {"sqlite": sqlite_journal, "simulated": simulated_journal}
TABLES = {"sqlite": sqlite_tables, "simulated": simulated_tables}
