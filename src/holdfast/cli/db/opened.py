"""What every `db` verb begins with: the settings, the stores with their whole history, and a line of progress."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from holdfast.adapters.files import Folder
from holdfast.app import stores
from holdfast.config import Config
from holdfast.core.event import Tip
from holdfast.core.policy import Policy
from holdfast.engine.longjournal import LongJournal
from holdfast.ports import Tables

Data = Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")]
File = Annotated[
    Path | None, typer.Option("--config", help="TOML file of the node. [default: ./holdfast.toml if it exists]")
]
EVERY_S: Final = 0.2


class Opened(msgspec.Struct, frozen=True):
    """The stored data of one node."""

    journal: LongJournal
    tables: Tables
    snapshots: Folder
    archive: Folder
    policy: Policy


@asynccontextmanager
async def opened(settings: Config) -> AsyncIterator[Opened]:
    """Journal (with its archive), tables and snapshots; nothing is owned or changed by it."""
    store, tables = stores(settings)
    archive = Folder(settings.data / "archive")
    try:
        yield Opened(LongJournal(store, archive), tables, snapshots_of(settings), archive, settings.policy)
    finally:
        await tables.close()
        await store.close()


def snapshots_of(settings: Config) -> Folder:
    return Folder(settings.data / "snapshots")


class Progress:
    """One line that is written over and over, and only for somebody who watches."""

    def __init__(self, doing: str) -> None:
        self._doing, self._next, self._is_shown = doing, time.monotonic() + EVERY_S, False

    def __call__(self, tip: Tip) -> None:
        if time.monotonic() >= self._next and sys.stderr.isatty():
            self._next, self._is_shown = time.monotonic() + EVERY_S, True
            print(f"\r{self._doing}: batch {tip.number}, event {tip.last}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
