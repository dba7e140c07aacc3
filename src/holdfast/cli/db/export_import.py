"""`holdfast db export` and `import`: a backup of a running node, and the move from one kind of store to the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from holdfast.adapters.files import AtomicFolder
from holdfast.app.stores import prepare_folder
from holdfast.cli.db.stores import open_stores
from holdfast.cli.terminal.options import ConfigFile, Data
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import load_settings, report_errors, value_or_exit
from holdfast.core.base.errors import Refused
from holdfast.history.archive_segments import parse_segment_name
from holdfast.history.export_import import MANIFEST, ExportManifest, export_journal, import_journal


def export(
    to: Annotated[Path, typer.Option(metavar="DIR", help="A new folder, or one with an earlier export.")],
    data: Data = None,
    config: ConfigFile = None,
) -> None:
    """Write the whole history into a folder, as a backup. A running node is not disturbed.

    It has everything that was confirmed before the export began. Repeated into the same folder, it adds what is new and
    never rewrites a segment. The export is read back and folded before manifest.json is replaced; until then an import
    sees the previous export.

    It is history only: the node's keys and the outputs in its folder warm/ are not part of it. Copy them as well.
    """
    settings = load_settings(config, {"data": data}, with_stores=True)
    progress, folder = ProgressLine("exporting"), AtomicFolder(to)

    async def export_history() -> ExportManifest | Refused:
        if await _is_foreign(folder):
            return Refused("ENG-004", f"{to} has other files", "choose a new folder or one with an earlier export")
        async with open_stores(settings) as stores:
            await stores.journal.tip()  # fails if there is no journal, before the folder is created
            with folder.exclusive():
                return await export_journal(stores.journal, folder, stores.policy, progress.show_batch)

    with report_errors():
        answer = asyncio.run(export_history())
        progress.end()
        print(f"exported {_describe(value_or_exit(answer))} to {to}")


def import_(
    from_: Annotated[Path, typer.Option("--from", metavar="DIR", exists=True, file_okay=False, help="An export.")],
    data: Data = None,
    config: ConfigFile = None,
    store: Annotated[str | None, typer.Option(help="sqlite or postgres. [default: sqlite]")] = None,
) -> None:
    """Fill an empty store from an export: restore a backup, or move from one kind of store to the other.

    Every segment, the hash chain, every payload and the folded state are verified against manifest.json before anything
    is written, and what was written is read back. A store that is not empty is refused, unless it has the beginning of
    this export: then an interrupted import is continued.

    The first start afterwards builds the tables. Never run both the old and the restored node: they would be two
    histories with one past.
    """
    settings = load_settings(config, {"data": data, "store": store}, with_stores=True)
    progress = ProgressLine("importing")

    async def import_history() -> ExportManifest | Refused:
        prepare_folder(settings.data)
        async with open_stores(settings) as stores:
            return await import_journal(AtomicFolder(from_), stores.journal, stores.policy, progress.show_batch)

    with report_errors():
        answer = asyncio.run(import_history())
        progress.end()
        print(f"imported {_describe(value_or_exit(answer))} into {settings.data}")
        print(f"copy keys/ and warm/ of the old folder into {settings.data} first: an export does not have them")
        print(f"start it with: holdfast up --data {settings.data}")


def _describe(manifest: ExportManifest) -> str:
    return f"{manifest.events} events in {manifest.batches} batches, state {manifest.digest}"


async def _is_foreign(folder: AtomicFolder) -> bool:
    """Whether the folder has files and none of them belongs to an export."""
    names = await folder.names()
    return bool(names) and not any(name == MANIFEST or parse_segment_name(name) for name in names)
