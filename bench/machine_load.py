"""Whether the machine was quiet when a program began: figures of a busy one say so in every table."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import msgspec

QUIET_BELOW: Final = 0.5
"""The load average of the last minute, summed over all cores."""
ASK_S: Final = 5.0


class MachineLoad(msgspec.Struct, frozen=True):
    """The load average when a program began; `waited_s` is how long it had been waited for."""

    at_start: float
    cores: int
    is_quiet: bool
    waited_s: float = 0.0


def now() -> float:
    return os.getloadavg()[0]


def begin(wait_s: float = 0.0) -> MachineLoad:
    """Look at the machine, or wait at most so long until it is quiet; what every table of this run will say."""
    global _begun  # noqa: PLW0603 - tables are made in many places, all of them in one run
    began = time.monotonic()
    while (load := now()) >= QUIET_BELOW and time.monotonic() - began < wait_s:
        print(f"load average {load:.2f}, waiting for less than {QUIET_BELOW}", file=sys.stderr, flush=True)
        time.sleep(min(ASK_S, wait_s))
    _begun = MachineLoad(load, os.cpu_count() or 1, load < QUIET_BELOW, round(time.monotonic() - began, 1))
    return _begun


def describe() -> str:
    """One line for a table."""
    if _begun is None:
        return f"load average at the end {now():.1f}"
    state = "quiet" if _begun.is_quiet else f"THE MACHINE WAS BUSY, a quiet one is below {QUIET_BELOW}"
    return f"load average {_begun.at_start:.2f} at the start ({state}), {now():.2f} here; {_begun.cores} cores"


_begun: MachineLoad | None = None
