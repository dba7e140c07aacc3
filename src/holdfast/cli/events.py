"""`holdfast events`: follow what happens, from any point, without missing or repeating anything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli import Command, verb
from holdfast.cli.speak import configured, told
from holdfast.client import Client

app = verb()


@app.command(cls=Command)
def events(
    after: Annotated[int, typer.Option(help="Start after this event; keep the last number you saw.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many. [default: never]")] = None,
    data: Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")] = None,
) -> None:
    """Print durable events as JSON lines, old ones first, then as they happen."""

    async def follow() -> None:
        left = limit
        async for event in Client(configured(None, {"data": data}).data).follow(after):
            print(msgspec.json.encode(event).decode(), flush=True)
            if left is not None and (left := left - 1) == 0:
                return

    with told():
        asyncio.run(follow())
