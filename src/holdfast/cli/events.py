"""`holdfast events`: follow what happens, from any point, without missing or repeating anything."""

from __future__ import annotations

import asyncio
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli import Command, verb
from holdfast.cli.speak import configured, refuse, told
from holdfast.client import Client
from holdfast.core import law
from holdfast.core.refusal import Refused

app = verb()


@app.command(cls=Command)
def events(
    after: Annotated[int, typer.Option(min=0, help="Start after this event; keep the last number you saw.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many. [default: never]")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on as things happen, or end at what there is now.")
    ] = True,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only these, for example JobAdmitted; several are allowed.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")] = None,
) -> None:
    """Print durable events as JSON lines, old ones first, then as they happen, also over a restart of the node."""
    wanted = _wanted(type_ or [])

    async def watch() -> None:
        left, folder = limit, configured(None, {"data": data}).data
        last = None if follow else await _last(folder)
        if after == last:
            return
        async for event in Client(folder).follow(after):
            if not wanted or event["type"] in wanted:
                print(msgspec.json.encode(event).decode(), flush=True)
                if left is not None and (left := left - 1) == 0:
                    return
            if last is not None and event["number"] >= last:
                return

    with told():
        asyncio.run(watch())


async def _last(folder: Path) -> int:
    async with Client(folder) as node:
        return int((await node.status())["event"])


def _wanted(types: list[str]) -> frozenset[str]:
    known = [kind.__name__ for kind in law.EVENTS]
    for name in types:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            refuse(Refused("EVT-001", f"--type: no event {name!r:.80}", hint, "InvalidParams"))
    return frozenset(types)
