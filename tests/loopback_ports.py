"""Loopback ports below those that the system gives out: each process of a run takes them from a part of its own.

A node that is killed and started again finds its port free: nobody else has taken it meanwhile, and who asks next is
given another one.
"""

from __future__ import annotations

import os
import re
import socket
from itertools import cycle, islice
from typing import Final

FIRST, LAST = 10_000, 20_000  # above these `holdfast demo` and the examples look for theirs
PARTS: Final = 8
_WIDTH: Final = (LAST - FIRST) // PARTS


def _part() -> int:
    """Workers of one run are told apart by their number; whoever runs alone, by its process."""
    worker = re.search(r"\d+", os.environ.get("PYTEST_XDIST_WORKER", ""))
    return (int(worker[0]) if worker else os.getpid()) % PARTS


def _ports() -> range:
    return range(FIRST + _part() * _WIDTH, FIRST + (_part() + 1) * _WIDTH)


_next = cycle(_ports())
for _ in islice(_next, os.getpid() % _WIDTH):  # two runs at once begin at different places
    pass


def free_port() -> int:
    for port in islice(_next, _WIDTH):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"no free port in {_ports()}")


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
