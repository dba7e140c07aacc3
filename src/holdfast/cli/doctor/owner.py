"""A node that does not answer: whether it is dead, hangs, or is alive and recovering (ENG-008)."""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.cli.doctor.finding import HostFinding
from holdfast.client import SOCKET_NAME
from holdfast.config import Config
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.ports import Journal

BEATS: Final = 3
"""How many heartbeats an owner may miss before it counts as hanging."""


async def check_owner(settings: Config, reason: str) -> HostFinding:
    """What the journal's owner shows of itself; `reason` is why this node gave no answer."""
    from holdfast.app.stores import make_stores  # noqa: PLC0415 - only here a store is needed

    journal, tables = make_stores(settings)
    try:
        return await describe_owner(journal, settings, reason)
    except (Unavailable, Corrupt) as fault:
        return HostFinding(False, "node", f"{reason}; its owner is not known: {fault}")
    finally:
        await tables.close()
        await journal.close()


async def describe_owner(journal: Journal, settings: Config, reason: str) -> HostFinding:
    """Another heartbeat than before shows a live owner: no clock is compared."""
    first = await journal.owner_beat()
    if first is None:
        if not (settings.data / SOCKET_NAME).exists():
            return HostFinding(True, "node", "not running")
        return HostFinding(False, "node", f"{reason}; no process owns the journal", "it was killed: start it again")
    for _ in range(2 * BEATS):
        await asyncio.sleep(settings.owner.heartbeat_ms / 2000)
        if await journal.owner_beat() != first:
            message = f"{first.holder} owns the journal and is alive, but does not answer here"
            return HostFinding(True, "node", message, "it is recovering or stopping, or another node: see its log")
    message = f"{first.holder} owns the journal and shows no heartbeat"
    return HostFinding(False, "node", message, "it hangs: end it and start it again; a standby would replace it")
