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
from holdfast.cli.terminal.reporting import load_settings, refuse, report_errors
from holdfast.cli.terminal.tables import pluralize, print_json, print_outcome, print_record
from holdfast.core.base.errors import Refused

POLL_S: Final = 0.2
NOT_SHOWN: Final = ("archived", "pruned", "packed_event", "blob_wait_blocks", "is_on")
"""Fields for programs, and those that are bars."""

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
        bool, typer.Option("--wait", help="Wait until all results up to the head are archived; shows the progress.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what is archived and pruned, what waits, what is stalled, and how far the archive lags behind.

    With --wait it ends when every output that is in a block now is archived, or with exit code 1 when all that is left
    is stalled. A small output waits for others to fill its blob, for `blob_wait_blocks` at most.
    """
    progress = run_on_node(address, _wait) if wait else call_node(address, "archive.getStatus")
    if as_json:
        print_json(progress)
    else:
        total = progress["archived"] + progress["pending"]
        print(f"archived  {_bar(progress['archived'], total)}")
        print(f"pruned    {_bar(progress['pruned'], progress['archived'])}")
        print_record({name: value for name, value in progress.items() if name not in NOT_SHOWN})
    if wait and progress["stalled"]:
        raise typer.Exit(1)


async def _wait(node: NodeSession) -> dict[str, Any]:
    """ARC-001: until what is in blocks now is archived. What comes meanwhile is not waited for."""
    line, until, packed_at = ProgressLine("archiving"), None, None
    while True:
        progress: dict[str, Any] = await node.call("archive.getStatus")
        if not progress["is_on"]:
            hint = "set [archive] in holdfast.toml and restart"
            refuse(Refused("ARC-004", "no archive is configured", hint, "Unavailable"))
        until = progress["head"] if until is None else until
        if not 0 < progress["unpacked_height"] <= until and packed_at is None:
            packed_at = progress["head"] + 1  # the open block: the last blob is in it, or in one before
        if packed_at is not None and not _is_waiting(progress, packed_at):
            line.end()
            return progress
        _show(line, progress)
        await asyncio.sleep(POLL_S)


def _is_waiting(progress: dict[str, Any], packed_at: int) -> bool:
    """A blob up to this height waits, and may still be archived by itself."""
    if progress["waiting_again"]:
        return True
    is_backlog = 0 < progress["backlog_height"] <= packed_at
    return is_backlog and bool(progress["pending"] > progress["stalled"])


def _show(line: ProgressLine, progress: dict[str, Any]) -> None:
    if progress["unpacked"] and not progress["pending"]:
        closed_at = progress["unpacked_height"] + progress["blob_wait_blocks"]
        waiting = pluralize(progress["unpacked"], "output")
        line.show_text(f"{waiting} waiting for a full blob, or for block {closed_at}; the head is {progress['head']}")
    else:
        line.show_count(progress["archived"], progress["archived"] + progress["pending"], "blobs")


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
