"""`holdfast gateway serve`: run the gateway until it gets a stop signal."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import structlog
import typer

from holdfast.app.log_output import configure_logging
from holdfast.cli.terminal.options import ConfigFile, Data
from holdfast.cli.terminal.reporting import load_settings, refuse, report_errors
from holdfast.config import BAD_CONFIG, Config, gateway_folder
from holdfast.core.base.errors import Refused
from holdfast.gateway.settings import faults, why_not_libraries

Host = Annotated[str | None, typer.Option(help="Listen on this address. [default: 127.0.0.1]")]
Port = Annotated[int | None, typer.Option(help="Listen on this port; 0 takes a free one. [default: 1247]")]


def serve(data: Data = None, config: ConfigFile = None, host: Host = None, port: Port = None) -> None:
    """Run the gateway: repair what a crash left, listen, stop cleanly on Ctrl-C or SIGTERM."""
    settings = gateway_config(data, config, {"gateway.host": host, "gateway.port": port})
    configure_logging(settings.log)
    with report_errors():
        asyncio.run(_serve(settings))


def gateway_config(data: Path | None, config: Path | None, flags: dict[str, object]) -> Config:
    """The settings, checked: also that what they need is installed."""
    settings = load_settings(config, {"data": data, **flags})
    for fault in faults(settings.gateway):
        refuse(Refused(fault.rule, f"gateway.{fault.message}", fault.hint, BAD_CONFIG))
    if (why_not := why_not_libraries(settings.gateway)) is not None:
        refuse(why_not)
    return settings


async def _serve(config: Config) -> None:
    from holdfast.adapters.clock import MachineClock  # noqa: PLC0415 - the settings are checked before this is loaded
    from holdfast.gateway.server import GatewayServer  # noqa: PLC0415
    from holdfast.gateway.stores import make_store  # noqa: PLC0415

    folder, stopped = gateway_folder(config), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = GatewayServer(config.gateway, folder, make_store(config.gateway, config.postgres, folder), MachineClock())
    try:
        await server.open()
        await stopped.wait()
        structlog.get_logger().info("stopping", reason="signal")
    finally:
        await server.close()
