"""`holdfast status`: how a running node is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import Command, verb
from holdfast.cli.speak import configured, told
from holdfast.client import Client

app = verb()


@app.command(cls=Command)
def status(
    data: Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")] = None,
) -> None:
    """Say where the node stands: epoch, batch, event, and how far the tables are behind."""

    async def ask() -> dict[str, Any]:
        async with Client(configured(None, {"data": data}).data, patience_s=2.0) as node:
            found = await node.status()
            assert isinstance(found, dict)
            return found

    with told():
        for name, value in asyncio.run(ask()).items():
            print(f"{name:14}{value}")
