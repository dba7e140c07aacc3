"""`holdfast up`: run a node until it gets a stop signal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import structlog
import typer

from holdfast.api.grpc.settings import address_of
from holdfast.cli import make_app
from holdfast.cli.terminal.options import ConfigFile, Data
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.client import SOCKET_NAME

if TYPE_CHECKING:
    from holdfast.app.node import Node

app = make_app()


@app.command(example="holdfast up\nholdfast up --data /var/lib/holdfast --config /etc/holdfast.toml")
def up(
    data: Data = None,
    config: ConfigFile = None,
    network: Annotated[
        str | None, typer.Option(metavar="development|production", help="Which rules. [default: development]")
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="sqlite|postgres", help="Which store. [default: sqlite]")] = None,
    node: Annotated[str | None, typer.Option(help="This node's name in the journal.")] = None,
    standby: Annotated[
        bool | None,
        typer.Option("--standby", help="If another node owns the journal, follow it and take over when it fails."),
    ] = None,
    accept_clock: Annotated[
        bool | None,
        typer.Option("--accept-clock", help="The machine's clock is right, although a witness contradicts it."),
    ] = None,
) -> None:
    """Run a node: recover what is stored, answer on DATA/node.sock, stop cleanly on Ctrl-C or SIGTERM.

    It logs where it listens. `holdfast init` writes a holdfast.toml that enables the HTTP and gRPC APIs.

    Every setting can also come from the TOML file or from the environment (HOLDFAST_DATA, HOLDFAST_NETWORK,
    HOLDFAST_POLICY__ENGINE__BATCH_EVENTS_MAX …); flags win over the environment, the environment over the file.
    A standby answers reads and forwards commands to the owner; on a shared folder its socket is DATA/NAME.sock.
    The store postgres needs HOLDFAST_POSTGRES__DSN; the folder then holds the socket and the snapshots.
    """
    flags = {"data": data, "network": network, "store": store, "node": node, "standby": standby}
    flags["accept_clock"] = accept_clock
    settings = load_settings(config, flags, with_stores=True)
    from holdfast.app.node import Node  # noqa: PLC0415 - the settings are checked before anything heavy is loaded

    class AnnouncedNode(Node):
        """A node that logs where it listens."""

        async def start(self) -> None:
            await super().start()
            structlog.get_logger().info("listening", **endpoints(self))

    with report_errors():
        asyncio.run(AnnouncedNode(settings).run())


def endpoints(node: Node) -> dict[str, str]:
    """Where the node listens, and the setting that enables an API that is off."""
    config = node.config
    name = f"{config.node}.sock" if config.standby else SOCKET_NAME
    http = _DISABLED.format("http") if node.http_server is None else node.http_server.url
    grpc = _DISABLED.format("grpc")
    if config.grpc is not None and node.grpc_server is not None:
        grpc = address_of(msgspec.structs.replace(config.grpc, port=node.grpc_server.port))
        grpc += " with TLS" if config.grpc.certificate is not None else ""
    return {"socket": str(config.data / name), "http": http, "grpc": grpc}


_DISABLED: Final = "disabled, {}.enabled turns it on"
