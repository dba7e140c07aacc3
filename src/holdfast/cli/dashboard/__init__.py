"""`holdfast dashboard`: the page of any node, served on this machine with the token of a file or the environment."""

from __future__ import annotations

import asyncio
import signal
import webbrowser
from typing import Annotated, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import node_url
from holdfast.cli.terminal.options import NodeAddress, on_node
from holdfast.cli.terminal.reporting import report_errors
from holdfast.client.node_url import NodeUrl

app = make_app()
PORT: Final = 8460


@app.command(example="holdfast dashboard --url https://node.example:8451 --token-file auditor.token")
@on_node
def dashboard(
    address: NodeAddress,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Listen on this port; 0 takes a free one.")] = PORT,
    is_opened: Annotated[bool, typer.Option("--open", help="Also open it in this machine's browser.")] = False,
) -> None:
    """Show the page of a node here: of the one in this folder, or with --url of one far away.

    It sees and does what the token may. The token stays in this process; the printed address opens the page, and
    only for whoever has it. Ctrl-C ends it.
    """
    with report_errors():
        asyncio.run(_serve(node_url(address), port, is_opened=is_opened))


async def _serve(node: NodeUrl, port: int, *, is_opened: bool) -> None:
    from holdfast.api.dashboard.page import load_page  # noqa: PLC0415 - a server is loaded when one is wanted
    from holdfast.cli.dashboard.server import DashboardServer  # noqa: PLC0415

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with DashboardServer(node, load_page(), port) as server:
        print(f"The page of {node}, as {server.visitor}:\n  {server.url}\nCtrl-C ends it.", flush=True)
        if is_opened:
            await asyncio.to_thread(webbrowser.open, server.url)
        await stopped.wait()
