"""Advisory locks of a session: who writes, until its backend ends.

Why the lock is enough. A connection that we cut, or that was cut for us, has a backend which may still be committing
what it was sent. That backend holds its session's lock until it ends, and it ends after its last commit. So whoever
has the lock knows that no earlier write of anybody can still land: what it reads then is the truth (ENG-001).
"""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.adapters.postgres.connect import Connection
from holdfast.core.refusal import Unavailable

_LOOK_AGAIN_S: Final = 0.02
_HOLDER: Final = """
SELECT activity.pid, coalesce(host(activity.client_addr), 'this machine'), activity.application_name
FROM pg_locks AS held JOIN pg_stat_activity AS activity USING (pid)
WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (held.classid::bigint << 32) + held.objid::bigint = $1
LIMIT 1
"""


async def take_lock(connection: Connection, key: int, patience_s: float, what: str) -> None:
    """Take the session lock; wait a little for a backend that is just ending, then say who has it (ENG-001)."""
    end = asyncio.get_running_loop().time() + patience_s
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", key):
        if asyncio.get_running_loop().time() >= end:
            raise Unavailable(
                "ENG-001",
                f"{await _holder(connection, key)} owns {what}",
                "stop that node first, or use another schema",
            )
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _holder(connection: Connection, key: int) -> str:
    row = await connection.fetchrow(_HOLDER, key)
    return "another node" if row is None else f"a node on {row[1]} (backend {row[0]}, {row[2]})"
