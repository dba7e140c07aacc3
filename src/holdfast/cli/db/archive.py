"""`holdfast db archive`: old batches out of the store into chapters, a list of those, and their end."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from holdfast.cli import verb
from holdfast.cli.db.opened import Data, File, Progress, opened
from holdfast.cli.speak import configured, refuse, told
from holdfast.core.refusal import Refused
from holdfast.core.values import BatchNo
from holdfast.engine.archive import bound
from holdfast.engine.chapters import Book, Name

app = verb()
KEEP_BATCHES = 1_000


@app.callback(invoke_without_command=True)
def archive(
    context: typer.Context,
    keep_batches: Annotated[int, typer.Option(min=1, help="So many of the newest stay in the store.")] = KEEP_BATCHES,
    data: Data = None,
    config: File = None,
) -> None:
    """Move old batches from the store into compressed, hash-chained files in DATA/archive.

    A running node does not notice: the batches go in small steps, and whoever reads history finds them in the archive.
    A batch leaves the store only when its chapter was written, synced and read back. What a start needs stays: the
    batches after the older of the two kept snapshots, so that a node starts even if the archive is lost. The store's
    file does not shrink; its space is used again.
    """
    if context.invoked_subcommand is not None:
        return
    settings = configured(config, {"data": data}, with_stores=True)
    progress = Progress("archiving")

    async def move() -> str:
        async with opened(settings) as db:
            await db.journal.tip()  # before the folder is made: there may be no journal
            with db.archive.alone():
                found = await bound(db.journal, db.tables, db.snapshots, db.policy, keep_batches, progress)
                floor = await db.journal.store.floor()
                if found.until > floor:
                    await db.journal.trim(found.until, progress)
                    return f"moved batches {floor + 1} to {found.until} ({found.because})"
                return f"nothing to move: {floor} batches are in the archive already ({found.because})"

    with told():
        says = asyncio.run(move())
        progress.end()
        print(says)


@app.command("list")
def list_(data: Data = None, config: File = None) -> None:
    """The chapters there are, with the batches and events they hold."""
    names = asyncio.run(_names(data, config))
    for name in names:
        print(f"batches {name.first}-{name.last}  events {name.first_event}-{name.last_event}  {name}")
    print(f"{len(names)} chapters")


@app.command()
def delete(
    until: Annotated[int, typer.Option(metavar="BATCH", min=1, help="Chapters that end at or before this batch.")],
    yes: Annotated[bool, typer.Option("--yes", help="Really delete them.")] = False,
    data: Data = None,
    config: File = None,
) -> None:
    """Delete the oldest chapters for ever. Holdfast itself never does that.

    Afterwards the events in them cannot be read any more, nor the large payloads; the tables cannot be rebuilt, only
    kept; a new export cannot begin, only one that has these batches go on; and a check begins at a snapshot. The node
    itself runs and starts without them.
    """
    names = asyncio.run(_names(data, config))
    gone = [name for name in names if name.last <= until]
    if not gone:
        refuse(Refused("ENG-004", f"no chapter ends at or before batch {until}", "holdfast db archive list shows them"))
    says = f"{len(gone)} chapters with batches {gone[0].first} to {gone[-1].last}, events up to {gone[-1].last_event}"
    if not yes:
        refuse(Refused("ENG-004", f"this would delete {says}: {_LOSS}", "say --yes if an export or nobody needs them"))
    settings = configured(config, {"data": data}, with_stores=True)

    async def drop() -> None:
        async with opened(settings) as db:
            with db.archive.alone():
                await Book(db.archive).delete_until(BatchNo(until))

    with told():
        asyncio.run(drop())
        print(f"deleted {says}")


_LOSS = "their events and payloads are gone, tables cannot be rebuilt, no new export can begin"


async def _names(data: Data, config: File) -> list[Name]:
    settings = configured(config, {"data": data}, with_stores=True)
    with told():
        async with opened(settings) as db:
            return await Book(db.archive).names()
