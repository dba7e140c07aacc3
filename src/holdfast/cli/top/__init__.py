"""`holdfast top`: the network in the terminal, live; plain lines where there is no terminal."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import NodeSession, connect
from holdfast.cli.terminal.options import JsonLines, NodeAddress, on_node
from holdfast.cli.terminal.reporting import report_errors
from holdfast.cli.terminal.tables import print_json_line
from holdfast.cli.top.glance import Glance, lines_of

app = make_app()
CLEAR: Final = "\033[H\033[2J"


@app.command(example="holdfast top --every 5\nholdfast top --count 1 --json")
@on_node
def top(
    address: NodeAddress,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after this many looks. [default: 1, on a terminal: never]")
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """Show the network: a verdict, what waits and since when, leases, rates, p99 wait, worst providers, failures.

    For operators and auditors. Ctrl-C ends it.
    """
    is_live = sys.stdout.isatty()
    looks = count if count is not None else (None if is_live else 1)
    with report_errors():
        asyncio.run(_watch(address, every, looks, is_live=is_live, as_json=as_json))


async def _watch(address: NodeAddress, every_s: float, looks: int | None, *, is_live: bool, as_json: bool) -> None:
    before: Glance | None = None
    async with connect(address) as node:
        while looks is None or looks > 0:
            now = await _look(node)
            if as_json:
                print_json_line({"overview": now.overview, "activity": now.activity})
            else:
                text = "\n".join(lines_of(now, before))
                print(f"{CLEAR}{text}" if is_live else text, flush=True)
            before, looks = now, None if looks is None else looks - 1
            if looks != 0:
                await asyncio.sleep(every_s)


async def _look(node: NodeSession) -> Glance:
    return Glance(await node.call("node.getOverview"), await node.call("queue.getActivity"))
