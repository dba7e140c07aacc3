"""Free ports of the loopback address, below those that the system gives out by itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from contextlib import suppress
from itertools import chain
from typing import Final

PORTS: Final = range(20_000, 32_768)


def find_free_port(taken: Collection[int] = ()) -> int | None:
    """None where all are in use. Each process begins its search elsewhere: two at once find different ones."""
    first = os.getpid() * 7 % len(PORTS)
    for port in chain(PORTS[first:], PORTS[:first]):
        if port not in taken:
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    return None
