"""Advisory locks of a session: they name the writer until its backend ends.

Why the lock is enough: the backend of a connection that was cut may still be committing what it received. It holds its
session's lock until it ends, and it ends after its last commit. So the session that holds the lock knows that no
earlier write can still land, and what it reads is final (ENG-001).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from holdfast.adapters.postgres.connect import Connection
from holdfast.core.base.errors import Unavailable
from holdfast.ports import OwnerBeat

_POLL_S: Final = 0.02
_HOLDER: Final = """
SELECT activity.pid, coalesce(host(activity.client_addr), 'this machine'), activity.application_name,
  coalesce(activity.state_change::text, '') AS beat
FROM pg_locks AS held JOIN pg_stat_activity AS activity USING (pid)
WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1 AND held.mode = 'ExclusiveLock'
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (held.classid::bigint << 32) + held.objid::bigint = $1
LIMIT 1
"""
_EVICT: Final = f"""
SELECT pg_terminate_backend(pid, 10000) FROM ({_HOLDER}) AS holder WHERE pid || ' ' || beat = $2
"""  # noqa: S608 - our own text
"""Ends the backend only while it is as silent as it was seen to be; waits up to 10 s for its end."""


async def take_lock(connection: Connection, key: int, wait_s: float, what: str) -> None:
    """Take the session lock; wait a little for a backend that is ending, then refuse and name the holder (ENG-001)."""
    end = asyncio.get_running_loop().time() + wait_s
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", key):
        if asyncio.get_running_loop().time() >= end:
            raise Unavailable(
                "ENG-001",
                f"{await _holder(connection, key)} owns {what}",
                "stop that node first, or use another schema",
            )
        await asyncio.sleep(_POLL_S)


async def last_beat(connection: Connection, key: int) -> OwnerBeat | None:
    """ENG-008: the holder of the lock and when its session was last active, by the server's own account."""
    row = await connection.fetchrow(_HOLDER, key)
    if row is None:
        return None
    if not row["beat"]:
        raise Unavailable("ENG-008", f"the session of {_describe(row)} belongs to another role: it cannot be watched")
    return OwnerBeat(_describe(row), f"{row['pid']} {row['beat']}")


async def evict_holder(connection: Connection, key: int, seen: OwnerBeat) -> None:
    """End the backend of an owner that is still silent: its lock ends with it, and the batch number fences the node."""
    if await connection.fetchval(_EVICT, key, seen.mark) is False:
        raise Unavailable("ENG-008", f"{seen.holder} hangs and its backend does not end")


async def _holder(connection: Connection, key: int) -> str:
    row = await connection.fetchrow(_HOLDER, key)
    return "another node" if row is None else _describe(row)


def _describe(row: Any) -> str:
    return f"a node on {row[1]} (backend {row[0]}, {row[2]})"
