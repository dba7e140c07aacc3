"""`holdfast events`: follow the journal's events from any point; none is missed and none is repeated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.api.public_events import event_names
from holdfast.cli import VerbCommand, make_app
from holdfast.cli.terminal.options import Data
from holdfast.cli.terminal.reporting import load_settings, refuse, report_errors
from holdfast.client import Client
from holdfast.core.base.did_you_mean import did_you_mean
from holdfast.core.base.errors import Refused

app = make_app()


@app.command(cls=VerbCommand)
def events(
    after: Annotated[int, typer.Option(min=0, help="Start after this event; keep the last number you saw.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many. [default: never]")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Continue with new events, or end at the newest.")
    ] = True,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only this type, for example jobAdmitted. May be repeated.")
    ] = None,
    data: Data = None,
) -> None:
    """Print durable events as JSON lines: old ones first, then new ones, also across a restart of the node."""
    types = _check_types(type_ or [])

    async def print_events() -> None:
        left, folder = limit, load_settings(None, {"data": data}).data
        last = None if follow else await _last_event(folder)
        if after == last:
            return
        async for event in Client(folder).follow(after):
            if not types or event["type"] in types:
                print(msgspec.json.encode(event).decode(), flush=True)
                if left is not None and (left := left - 1) == 0:
                    return
            if last is not None and event["number"] >= last:
                return

    with report_errors():
        asyncio.run(print_events())


async def _last_event(folder: Path) -> int:
    async with Client(folder) as node:
        return int((await node.status())["event"])


def _check_types(types: list[str]) -> frozenset[str]:
    known = event_names()
    for name in types:
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"there are {', '.join(known)}")
            refuse(Refused("EVT-001", f"--type: no event {name!r:.80}", hint, "InvalidParams"))
    return frozenset(types)
