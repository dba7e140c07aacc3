"""`holdfast db export` and `import`: a backup beside a running node, and the way from one store to another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from holdfast.adapters.files import Folder
from holdfast.app import prepare_folder
from holdfast.cli.db.opened import Data, File, Progress, opened
from holdfast.cli.speak import configured, given, refuse, told
from holdfast.core.refusal import Refused
from holdfast.engine import transfer
from holdfast.engine.chapters import read_name
from holdfast.engine.transfer import MANIFEST, Manifest


def export(
    to: Annotated[Path, typer.Option(metavar="DIR", help="A new folder, or one with an earlier export.")],
    data: Data = None,
    config: File = None,
) -> None:
    """Write all of history into a folder: the backup. A running node does not notice.

    Everything that was confirmed before the export began is in it. Made again into the same folder, it adds only what
    is new and never rewrites a chapter. It is read back and folded before manifest.json says what it holds; until
    then an import sees the export before.

    It is history: the keys of the node and the outputs in its folder warm/ are not in it. Copy them as well.
    """
    settings = configured(config, {"data": data}, with_stores=True)
    progress, folder = Progress("exporting"), Folder(to)

    async def work() -> Manifest | Refused:
        if await _is_foreign(folder):
            return Refused("ENG-004", f"{to} holds other files", "choose a new folder or one with an earlier export")
        async with opened(settings) as db:
            await db.journal.tip()  # before the folder is made: there may be no journal
            with folder.alone():
                return await transfer.export(db.journal, folder, db.policy, progress)

    with told():
        done = asyncio.run(work())
        progress.end()
        print(f"exported {_said(given(done))} to {to}")


def import_(
    from_: Annotated[Path, typer.Option("--from", metavar="DIR", exists=True, file_okay=False, help="An export.")],
    data: Data = None,
    config: File = None,
    store: Annotated[str | None, typer.Option(help="sqlite or postgres. [default: sqlite]")] = None,
) -> None:
    """Fill an empty store from an export: restore a backup, or move from one kind of store to the other.

    Every chapter, the hash chain, every payload and the state it all folds to are verified against manifest.json
    before anything is written, and what was written is read back. A store that is not empty is refused, unless it
    holds the beginning of this very export: then an import that was interrupted goes on.

    The first start afterwards makes the tables. Never run the old and the restored node both: they would be two
    histories with one past.
    """
    settings = configured(config, {"data": data, "store": store}, with_stores=True)
    progress = Progress("importing")

    async def work() -> Manifest | Refused:
        prepare_folder(settings.data)
        async with opened(settings) as db:
            return await transfer.import_(Folder(from_), db.journal, db.policy, progress)

    with told():
        done = asyncio.run(work())
        progress.end()
        if isinstance(done, Refused):
            refuse(done)
        print(f"imported {_said(done)} into {settings.data}")
        print(f"copy keys/ and warm/ of the old folder into {settings.data} first: an export does not hold them")
        print(f"start it with: holdfast up --data {settings.data}")


def _said(manifest: Manifest) -> str:
    return f"{manifest.events} events in {manifest.batches} batches, state {manifest.digest}"


async def _is_foreign(folder: Folder) -> bool:
    """Whether there are files and none of them is an export's: nothing is mixed into somebody else's folder."""
    names = await folder.names()
    return bool(names) and not any(name == MANIFEST or read_name(name) for name in names)
