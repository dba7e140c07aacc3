"""`holdfast events`: follow the journal's events from any point; none is missed and none is repeated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.api.derived_events import Cursor, parse_cursor
from holdfast.api.public_events import event_names
from holdfast.cli import make_app
from holdfast.cli.terminal import node_client
from holdfast.cli.terminal.options import Data, JsonAlways
from holdfast.cli.terminal.reporting import load_settings, refuse, report_errors
from holdfast.client.node_socket import NodeSocket
from holdfast.core.base.errors import Refused
from holdfast.system.did_you_mean import did_you_mean

app = make_app()


@app.command(example="holdfast events --no-follow --limit 20\nholdfast events --type jobCompleted --after 1200")
def events(
    after: Annotated[
        str,
        typer.Option(
            metavar="EVENT",
            help="Start after this event: the last `number` you saw, or `number.index` where it had one.",
        ),
    ] = "0",
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many. [default: never]")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Continue with new events, or end at the newest.")
    ] = True,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only this type, for example jobAdmitted. May be repeated.")
    ] = None,
    data: Data = None,
    as_json: JsonAlways = True,
) -> None:
    """Print durable events as JSON lines: old ones first, then new ones, also across a restart of the node."""
    types, cursor = _check_types(type_ or []), _check_cursor(after)

    async def print_events() -> None:
        left, folder = limit, load_settings(None, {"data": data}).data
        newest = await _last_event(folder)
        last = None if follow else newest
        if cursor.after == last:
            return
        async for event in NodeSocket(folder).follow(after, derived=True):
            if not types or event["type"] in types:
                print(msgspec.json.encode(event).decode(), flush=True)
                if left is not None and (left := left - 1) == 0:
                    return
            if last is not None and event["number"] >= last and "index" not in event:
                return

    with report_errors():
        asyncio.run(print_events())


async def _last_event(folder: Path) -> int:
    async with NodeSocket(folder, node_client.TIMEOUT_S) as node:  # later, a node that restarts is waited for
        return int((await node.status())["event"])


def _check_cursor(after: str) -> Cursor:
    if (cursor := parse_cursor(after)) is None:
        message = f"--after: {after!r:.80} is neither `number` nor `number.index`"
        refuse(Refused("EVT-001", message, "keep those of the last event you saw", "InvalidParams"))
    return cursor


def _check_types(types: list[str]) -> frozenset[str]:
    known = event_names()
    for name in types:
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"there are {', '.join(known)}")
            refuse(Refused("EVT-001", f"--type: no event {name!r:.80}", hint, "InvalidParams"))
    return frozenset(types)
