"""`holdfast up`: run a node until it is told to stop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import Command, verb
from holdfast.cli.speak import configured, told

app = verb()


@app.command(cls=Command)
def up(
    data: Annotated[Path | None, typer.Option(help="Folder of the node's files. [default: ./holdfast-data]")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file. [default: ./holdfast.toml if it exists]")] = None,
    network: Annotated[str | None, typer.Option(help="development or production. [default: development]")] = None,
    store: Annotated[str | None, typer.Option(help="sqlite or postgres. [default: sqlite]")] = None,
    node: Annotated[str | None, typer.Option(help="This node's name in the journal.")] = None,
    standby: Annotated[
        bool | None, typer.Option("--standby", help="If another node owns the journal, follow it and take over later.")
    ] = None,
) -> None:
    """Run a node: recover what is stored, answer on DATA/node.sock, stop cleanly on Ctrl-C or SIGTERM.

    Every setting can also come from the TOML file or from the environment (HOLDFAST_DATA, HOLDFAST_NETWORK,
    HOLDFAST_POLICY__ENGINE__BATCH_EVENTS_MAX …); flags win over the environment, the environment over the file.
    A standby answers reads and hands commands on; on a shared folder its socket is DATA/NAME.sock.
    The store postgres needs HOLDFAST_POSTGRES__DSN; the folder then holds the socket and the snapshots.
    """
    flags = {"data": data, "network": network, "store": store, "node": node, "standby": standby}
    settings = configured(config, flags, with_stores=True)
    from holdfast.app import Node  # noqa: PLC0415 - the settings are judged before anything heavy is loaded

    with told():
        asyncio.run(Node(settings).run())
