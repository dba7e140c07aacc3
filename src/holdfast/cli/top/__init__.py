"""`holdfast top`: the network in the terminal, live; plain lines where there is no terminal."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Final

import typer

from holdfast.cli import VerbCommand, make_app
from holdfast.cli.terminal.node_client import NodeAddress, NodeSession, connect
from holdfast.cli.terminal.options import Ca, Data, TokenFile, Url
from holdfast.cli.terminal.reporting import report_errors
from holdfast.cli.top.glance import Glance, lines_of

app = make_app()
CLEAR: Final = "\033[H\033[2J"


@app.command(cls=VerbCommand)
def top(
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after this many looks. [default: 1, on a terminal: never]")
    ] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Show the network: a verdict, what waits and since when, leases, rates, p99 wait, worst providers, failures.

    For operators and auditors. Ctrl-C ends it.
    """
    is_live = sys.stdout.isatty()
    looks = count if count is not None else (None if is_live else 1)
    with report_errors():
        asyncio.run(_watch(NodeAddress(data, url, token_file, ca), every, looks, is_live=is_live))


async def _watch(address: NodeAddress, every_s: float, looks: int | None, *, is_live: bool) -> None:
    before: Glance | None = None
    async with connect(address) as node:
        while looks is None or looks > 0:
            now = await _look(node)
            text = "\n".join(lines_of(now, before))
            print(f"{CLEAR}{text}" if is_live else text, flush=True)
            before, looks = now, None if looks is None else looks - 1
            if looks != 0:
                await asyncio.sleep(every_s)


async def _look(node: NodeSession) -> Glance:
    return Glance(await node.call("node.getOverview"), await node.call("queue.getActivity"))
