"""`holdfast archive`: how far the archive is, and a copy of its key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import ConfigFile, Data, Json, NodeAddress, on_node
from holdfast.cli.terminal.progress import ProgressLine, format_bar
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.cli.terminal.tables import pluralize, print_json, print_outcome, print_record

POLL_S: Final = 0.2

app = make_app(no_args_is_help=True)
key = make_app(no_args_is_help=True, help="The key that private outputs are encrypted with.")
app.add_typer(key, name="key")


@app.callback()
def _archive() -> None:
    """Show how far the archive is, and export its key."""


@app.command(example="holdfast archive status --wait")
@on_node
def status(
    address: NodeAddress,
    wait: Annotated[
        bool, typer.Option("--wait", help="Show the progress until nothing waits for the archive.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what is archived and pruned, what waits, what is stalled, and how far the archive lags behind.

    With --wait it ends when everything is archived, or with exit code 1 when all that is left is stalled.
    """
    progress = run_on_node(address, _wait) if wait else call_node(address, "archive.getStatus")
    if as_json:
        print_json(progress)
    else:
        total = progress["archived"] + progress["pending"]
        print(f"archived  {_bar(progress['archived'], total)}")
        print(f"pruned    {_bar(progress['pruned'], progress['archived'])}")
        print_record({name: value for name, value in progress.items() if name not in ("archived", "pruned")})
    if wait and progress["pending"]:
        raise typer.Exit(1)


async def _wait(node: NodeSession) -> dict[str, Any]:
    line = ProgressLine("archiving")
    while True:
        progress: dict[str, Any] = await node.call("archive.getStatus")
        if progress["pending"] <= progress["stalled"]:
            line.end()
            return progress
        line.show_count(progress["archived"], progress["archived"] + progress["pending"], "blobs")
        await asyncio.sleep(POLL_S)


def _bar(done: int, total: int) -> str:
    return f"{format_bar(done, total)} {done} of {pluralize(total, 'blob')}"


@key.command("export", example="holdfast archive key export /media/usb/archive.key")
def export(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, on another disk.")],
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Copy the archive key to a new file. Nothing that it has encrypted is deleted before this was done once."""
    from holdfast.adapters.keys.archive_key import export_key  # noqa: PLC0415 - cryptography takes long to load
    from holdfast.app.archive_workers import ARCHIVE_KEY  # noqa: PLC0415

    settings = load_settings(config, {"data": data})
    with report_errors():
        exported = export_key(settings.data / ARCHIVE_KEY, target)
    outcome = f"key {exported.id:08x} is in {target}: keep it where this machine cannot lose it"
    print_outcome({"key": f"{exported.id:08x}", "file": str(target)}, outcome, as_json=as_json)
