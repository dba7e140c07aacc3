"""What `holdfast spool ship` runs: a connection, all sessions below the root, and a line for each of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.adapters.keys.agent_keys import AgentKeys
from holdfast.adapters.keys.signing import SigningKey
from holdfast.app.log_output import configure_logging
from holdfast.cli.spool.session import EXIT_UNREADABLE, spool_value_or_exit
from holdfast.config import LogSettings
from holdfast.core.base.errors import Refused
from holdfast.shipping.background_shipper import AsyncSystemClock, MakeOpener, transport_opener
from holdfast.shipping.node_connection import NodeConnection, Tls
from holdfast.shipping.root_shipper import RootShipper, SessionOutcome
from holdfast.spool.prometheus import serve_metrics


def ship_until(
    root: Path,
    markers: Path,
    to: str,
    tls: Tls | None,
    protocol: str,
    agent_data: Path | None,
    metrics_port: int | None,
    timeout_s: float | None,
) -> bool:
    """Whether everything is delivered. Without a timeout it goes on for ever."""
    configure_logging(LogSettings())
    signer = spool_value_or_exit(_key_in(agent_data), EXIT_UNREADABLE) if agent_data is not None else None
    opener = spool_value_or_exit(transport_opener(protocol, signer), EXIT_UNREADABLE)
    return asyncio.run(_ship(root, markers, to, tls, opener, metrics_port, timeout_s))


def _key_in(agent_data: Path) -> SigningKey | Refused:
    """The agent's key. None is made here: no node would know it."""
    keys = AgentKeys(agent_data)
    if not keys.exist:
        return Refused(
            "SEC-001", f"no agent's key in {agent_data}", "pass the folder of a registered agent", "NotFound"
        )
    return keys.current()


async def _ship(
    root: Path,
    markers: Path,
    to: str,
    tls: Tls | None,
    opener: MakeOpener,
    metrics_port: int | None,
    timeout_s: float | None,
) -> bool:
    connection, undelivered = NodeConnection(to, tls), list[SessionOutcome]()

    def report(outcome: SessionOutcome) -> None:
        print(describe_outcome(outcome), flush=True)
        if not outcome.is_delivered:
            undelivered.append(outcome)

    shipper = RootShipper(root, markers, opener(connection), AsyncSystemClock())
    server = serve_metrics(lambda: shipper.open_spools, metrics_port) if metrics_port is not None else None
    try:
        async with asyncio.timeout(timeout_s):
            await (shipper.follow(report) if timeout_s is None else shipper.ship(report))
    except TimeoutError:
        print(f"▲ not everything was delivered within {timeout_s:g} s", flush=True)
        return False
    finally:
        if server is not None:
            server.shutdown()
        await connection.close()
    return not undelivered


def describe_outcome(outcome: SessionOutcome) -> str:
    sign, reason = ("✔", "") if outcome.is_delivered else ("▲", f": {outcome.reason or 'not acked'}")
    name = f"{outcome.channel}/{outcome.session}"
    return f"{sign} {name}: {outcome.delivered} of {outcome.spooled} records delivered{reason}"
