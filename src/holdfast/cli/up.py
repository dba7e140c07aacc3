"""`holdfast up`: run a node until it is told to stop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import structlog
import typer

from holdfast.cli import Command, verb
from holdfast.cli.speak import configured, told
from holdfast.client import SOCKET
from holdfast.doors.grpc.settings import address_of

if TYPE_CHECKING:
    from holdfast.app import Node

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

    It says which doors are open and where; `holdfast init` writes a holdfast.toml that opens those to the network.

    Every setting can also come from the TOML file or from the environment (HOLDFAST_DATA, HOLDFAST_NETWORK,
    HOLDFAST_POLICY__ENGINE__BATCH_EVENTS_MAX …); flags win over the environment, the environment over the file.
    A standby answers reads and hands commands on; on a shared folder its socket is DATA/NAME.sock.
    The store postgres needs HOLDFAST_POSTGRES__DSN; the folder then holds the socket and the snapshots.
    """
    flags = {"data": data, "network": network, "store": store, "node": node, "standby": standby}
    settings = configured(config, flags, with_stores=True)
    from holdfast.app import Node  # noqa: PLC0415 - the settings are judged before anything heavy is loaded

    class Announced(Node):
        """A node that says where it can be reached."""

        async def start(self) -> None:
            await super().start()
            structlog.get_logger().info("doors", **doors(self))

    with told():
        asyncio.run(Announced(settings).run())


def doors(node: Node) -> dict[str, str]:
    """Where it listens, and what would open the doors that are shut."""
    config = node.config
    name = f"{config.node}.sock" if config.standby else SOCKET
    http = f"shut, {_OPENS.format('http')}" if node.http is None else node.http.url
    grpc = f"shut, {_OPENS.format('grpc')}"
    if config.grpc is not None and node.grpc is not None:
        grpc = address_of(msgspec.structs.replace(config.grpc, port=node.grpc.port))
        grpc += " with TLS" if config.grpc.certificate is not None else ""
    return {"socket": str(config.data / name), "http": http, "grpc": grpc}


_OPENS: Final = "{}.enabled opens it"
