"""`holdfast status`: show node status."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.cli import VerbCommand, make_app
from holdfast.cli.terminal.options import Data
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.client.node_socket import NodeSocket

app = make_app()


@app.command(cls=VerbCommand)
def status(data: Data = None) -> None:
    """Show node status: role, term, last batch and event, and how far the tables are behind."""

    async def get_status() -> dict[str, Any]:
        async with NodeSocket(load_settings(None, {"data": data}).data, total_timeout_s=2.0) as node:
            return dict(await node.status())

    with report_errors():
        for name, value in asyncio.run(get_status()).items():
            print(f"{name:14}{value}")
