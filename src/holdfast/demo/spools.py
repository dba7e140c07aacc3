"""The agents' spools, read from their disks while the agents run; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.spool.channel import list_sessions, read_status
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.names import SessionPaths

SPOOL = "spool"


def last_spooled(agent: Path) -> dict[str, int]:
    """The last record of each session in an agent's folder, by `channel/session`, like the node's watermarks.

    A session that was fully delivered may already be deleted: then it is not in the answer.
    """
    disk, last = RealDisk(), dict[str, int]()
    for folder in sorted((agent / SPOOL).glob("*/")):
        for session in list_sessions(disk, folder):
            # The agent writes, and deletes acked records, while we read.
            with suppress(OSError, Unavailable, Corrupt):
                last[f"{folder.name}/{session}"] = read_status(disk, SessionPaths(folder, folder.name, session)).last
    return last


def unacked_count(spooled: Mapping[str, int], watermarks: Mapping[str, int]) -> int:
    """How many spooled records the node has not acked."""
    return sum(max(0, last - watermarks.get(session, 0)) for session, last in spooled.items())
