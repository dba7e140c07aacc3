"""Opens what a gateway stores in: objects in a folder or a bucket, the index in SQLite or PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.item_index import ItemIndex
from holdfast.adapters.objects.local_folder import LocalObjects
from holdfast.adapters.postgres.settings import PostgresSettings
from holdfast.core.base.errors import Unavailable
from holdfast.gateway.item_store import ItemStore
from holdfast.gateway.settings import GatewaySettings, IndexStore
from holdfast.ports.objects import Objects


def open_objects(settings: GatewaySettings, folder: Path) -> Objects:
    if not settings.objects:
        return LocalObjects(folder / "objects")
    from holdfast.adapters.objects.remote_store import RemoteObjects  # noqa: PLC0415 - an extra

    return RemoteObjects(settings.objects, endpoint=settings.endpoint or None)


def make_index(settings: GatewaySettings, postgres: PostgresSettings, folder: Path) -> ItemIndex:
    """The index, not yet open: reading needs no more than this."""
    if settings.index is IndexStore.SQLITE:
        from holdfast.adapters.sqlite.item_index import SqliteItemIndex  # noqa: PLC0415

        clock = MachineClock()
        return SqliteItemIndex(folder / "index.db", query_ms=settings.query_ms, monotonic_ms=clock.monotonic_ms)
    from holdfast.adapters.postgres.connect import Database  # noqa: PLC0415 - an extra
    from holdfast.adapters.postgres.item_index import PostgresItemIndex  # noqa: PLC0415

    if postgres.dsn is None:
        raise Unavailable("SEC-001", "postgres.dsn is not set", "set HOLDFAST_POSTGRES__DSN, or gateway.index = sqlite")
    database = Database(
        postgres.dsn.reveal(),
        postgres.schema,
        connect_s=postgres.connect_timeout_ms / 1000,
        command_s=postgres.command_timeout_ms / 1000,
    )
    return PostgresItemIndex(database, query_ms=settings.query_ms)


def make_store(settings: GatewaySettings, postgres: PostgresSettings, folder: Path) -> ItemStore:
    return ItemStore(open_objects(settings, folder), make_index(settings, postgres, folder))
