"""The stores that every `db` verb opens: the journal with its archive, tables and snapshots of one node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from holdfast.adapters.files import AtomicFolder
from holdfast.app.stores import make_full_journal, make_stores
from holdfast.config import Config
from holdfast.core.policy import Policy
from holdfast.history.full_journal import FullJournal
from holdfast.ports import TableWriter


class NodeStores(msgspec.Struct, frozen=True):
    """The stored data of one node."""

    journal: FullJournal
    tables: TableWriter
    snapshots: AtomicFolder
    archive: AtomicFolder
    """Its lock is that of whoever archives; the segments may lie in a store that several nodes share."""
    policy: Policy


@asynccontextmanager
async def open_stores(settings: Config) -> AsyncIterator[NodeStores]:
    """Open everything that is stored. This acquires no ownership of the journal and changes nothing."""
    store, tables = make_stores(settings)
    archive = AtomicFolder(settings.data / "archive")
    try:
        yield NodeStores(
            journal=make_full_journal(settings, store),
            tables=tables,
            snapshots=AtomicFolder(settings.data / "snapshots"),
            archive=archive,
            policy=settings.policy,
        )
    finally:
        await tables.close()
        await store.close()
