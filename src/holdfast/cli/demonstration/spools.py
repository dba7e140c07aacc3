"""What the agents keep: their spools, read from their disks beside the running processes; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.spool.channel import sessions, standing
from holdfast.spool.disk import RealDisk
from holdfast.spool.names import Place

SPOOL = "spool"


def spooled(agent: Path) -> dict[str, int]:
    """The last record of each session in an agent's folder, by `channel/session`, as the node's marks are named.

    A session that the node has to its end may be gone from the disk: it is not in here.
    """
    disk, found = RealDisk(), dict[str, int]()
    for folder in sorted((agent / SPOOL).glob("*/")):
        for session in sessions(disk, folder):
            # The agent writes, and lets go of what was acked, while we look.
            with suppress(OSError, Unavailable, Corrupt):
                found[f"{folder.name}/{session}"] = standing(disk, Place(folder, folder.name, session)).last
    return found


def behind(spooled: Mapping[str, int], marks: Mapping[str, int]) -> int:
    """How many records the agent keeps that the node has not acknowledged."""
    return sum(max(0, last - marks.get(session, 0)) for session, last in spooled.items())
