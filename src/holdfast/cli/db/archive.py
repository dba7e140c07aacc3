"""`holdfast db archive`: move old batches from the store into archive segments, list the segments, delete them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.db.stores import open_stores
from holdfast.cli.terminal.options import ConfigFile, Data, Json, Yes
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import confirm, load_settings, refuse, report_errors
from holdfast.cli.terminal.tables import pluralize, print_outcome
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import BatchNo
from holdfast.history.archive_segments import SegmentName
from holdfast.history.trim import trim_bound

app = make_app()
KEEP_BATCHES: Final = 1_000
_CONSEQUENCES: Final = "Their events and payloads will be gone, tables cannot be rebuilt, no new export can begin"


@app.callback(invoke_without_command=True)
def archive(
    context: typer.Context,
    keep_batches: Annotated[
        int, typer.Option(min=1, help="How many of the newest batches stay in the store.")
    ] = KEEP_BATCHES,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Move old batches from the store into compressed, hash-chained files in DATA/archive.

    A running node is not disturbed: batches are moved in small steps, and readers of history find them in the archive.
    A batch is deleted from the store only when its segment was written, synced and read back. The batches after the
    older of the two kept snapshots stay, so that a node can start even if the archive is lost. The store's file does
    not shrink; its space is reused.
    """
    if context.invoked_subcommand is not None:
        return
    settings = load_settings(config, {"data": data}, with_stores=True)
    progress = ProgressLine("archiving")

    async def move_batches() -> tuple[int, str]:
        async with open_stores(settings) as stores:
            # This fails if there is no journal, before the archive's folder is created.
            progress.total = (await stores.journal.tip()).number
            with stores.archive.exclusive():
                bound = await trim_bound(
                    stores.journal, stores.tables, stores.snapshots, stores.policy, keep_batches, progress.show_batch
                )
                archived = await stores.journal.store.trimmed_until()
                if bound.until > archived:
                    await stores.journal.trim(bound.until, progress.show_batch)
                    return bound.until, f"moved batches {archived + 1} to {bound.until} ({bound.reason})"
                return archived, f"nothing to move: {archived} batches are in the archive already ({bound.reason})"

    with report_errors():
        archived_until, message = asyncio.run(move_batches())
        progress.end()
        print_outcome({"archived_until": archived_until}, message, as_json=as_json)


@app.command("list", example="holdfast db archive list")
def list_(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """List the archive segments with their batches and events."""
    segments = asyncio.run(_list_segments(data, config))
    lines = [
        f"batches {each.first}-{each.last}  events {each.first_event}-{each.last_event}  {each}" for each in segments
    ]
    values = [
        {
            "first": each.first,
            "last": each.last,
            "first_event": each.first_event,
            "last_event": each.last_event,
            "file": str(each),
        }
        for each in segments
    ]
    print_outcome(values, *lines, pluralize(len(segments), "segment"), as_json=as_json)


@app.command(example="holdfast db archive delete --until 5000 --yes")
def delete(
    until: Annotated[int, typer.Option(metavar="BATCH", min=1, help="Segments that end at or before this batch.")],
    yes: Yes = False,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Delete the oldest archive segments for ever. Holdfast itself never does that.

    Afterwards their events and large payloads cannot be read. The tables can be kept but not rebuilt. An export that
    has these batches can be continued, but no new one can begin. A check begins at a snapshot. The node runs and starts
    without them.
    """
    doomed = [segment for segment in asyncio.run(_list_segments(data, config)) if segment.last <= until]
    if not doomed:
        refuse(Refused("ENG-004", f"no segment ends at or before batch {until}", "holdfast db archive list shows them"))
    batches = f"batches {doomed[0].first} to {doomed[-1].last}, events up to {doomed[-1].last_event}"
    summary = f"{pluralize(len(doomed), 'segment')} with {batches}"
    confirm(f"Delete {summary}? {_CONSEQUENCES}.", "ENG-004", yes=yes)
    settings = load_settings(config, {"data": data}, with_stores=True)

    async def delete_segments() -> None:
        async with open_stores(settings) as stores:
            with stores.archive.exclusive():
                await stores.journal.archive.delete_until(BatchNo(until))

    with report_errors():
        asyncio.run(delete_segments())
        print_outcome({"deleted": [str(each) for each in doomed]}, f"deleted {summary}", as_json=as_json)


async def _list_segments(data: Data, config: ConfigFile) -> list[SegmentName]:
    settings = load_settings(config, {"data": data}, with_stores=True)
    with report_errors():
        async with open_stores(settings) as stores:
            return await stores.journal.archive.names()
