"""The stores of a node from its configuration: journal, tables, archive and snapshots."""

from __future__ import annotations

from pathlib import Path

from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.objects.object_files import ObjectFiles
from holdfast.adapters.objects.settings import make_objects
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.adapters.warm_shared import SharedWarmStore
from holdfast.adapters.warm_store import WarmStore
from holdfast.config import Config, Store, why_not_store
from holdfast.core.base.errors import Unavailable
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Journal, TableWriter
from holdfast.ports.blobs import BlobFiles


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
    """The store's journal together with the archive in the data folder, or where all nodes find it."""
    objects = make_objects(config.objects)
    return FullJournal(
        store, AtomicFolder(config.data / "archive") if objects is None else ObjectFiles(objects, "archive")
    )


def make_warm_store(config: Config) -> WarmStore:
    objects = make_objects(config.objects)
    return WarmStore(config.data / "warm") if objects is None else SharedWarmStore(config.data / "warm", objects)


def make_blob_files(config: Config) -> BlobFiles:
    """Where packs and undecided blobs lie."""
    from holdfast.adapters.blobs.blob_folder import BlobFolder  # noqa: PLC0415 - keccak takes long to load
    from holdfast.adapters.blobs.blob_objects import BlobObjects  # noqa: PLC0415

    objects = make_objects(config.objects)
    return BlobFolder(config.data / "blobs") if objects is None else BlobObjects(objects)


def snapshot_folder(config: Config) -> AtomicFolder:
    return AtomicFolder(config.data / "snapshots")


def prepare_folder(data: Path) -> None:
    """Create the folder, readable by its user alone: journal, tables, lock and socket rely on that."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise Unavailable("SEC-001", f"{data}: {fault.strerror}", "choose a folder that can be written") from fault
