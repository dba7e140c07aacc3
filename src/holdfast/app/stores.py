"""The stores of a node from its configuration: journal, tables, archive and snapshots."""

from __future__ import annotations

from pathlib import Path

from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.config import Config, Store, why_not_store
from holdfast.core.base.errors import Unavailable
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Journal, TableWriter


def make_stores(config: Config) -> tuple[Journal, TableWriter]:
    """Journal and tables as configured, not opened yet; the caller closes them."""
    if refusal := why_not_store(config):
        raise Unavailable(refusal.rule, refusal.message, refusal.hint)
    if config.store is Store.SQLITE:
        return SqliteJournal(config.data), SqliteTables(config.data)
    from holdfast.adapters.postgres.journal import LOCK_WAIT_S, PostgresJournal  # noqa: PLC0415
    from holdfast.adapters.postgres.tables import PostgresTables  # noqa: PLC0415

    settings = config.postgres
    assert settings.dsn is not None
    dsn, schema = settings.dsn.reveal(), settings.schema
    connect_s, command_s = settings.connect_timeout_ms / 1000, settings.command_timeout_ms / 1000
    journal = PostgresJournal(
        dsn,
        schema,
        allow_unsafe=settings.allow_unsafe,
        connect_s=connect_s,
        command_s=command_s,
        lock_wait_s=0.0 if config.standby else LOCK_WAIT_S,  # a standby does not wait for the lock: it follows
    )
    return journal, PostgresTables(dsn, schema, connect_s=connect_s, command_s=command_s)


def make_full_journal(config: Config, store: Journal) -> FullJournal:
    """The store's journal together with the archive in the data folder."""
    return FullJournal(store, AtomicFolder(config.data / "archive"))


def snapshot_folder(config: Config) -> AtomicFolder:
    return AtomicFolder(config.data / "snapshots")


def prepare_folder(data: Path) -> None:
    """Create the folder, readable by its user alone: journal, tables, lock and socket rely on that."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise Unavailable("SEC-001", f"{data}: {fault.strerror}", "choose a folder that can be written") from fault
