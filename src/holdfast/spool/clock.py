"""The spool's clock, passed in: records have wall time, monotonic time decides when to flush."""

from __future__ import annotations

import time
from typing import Protocol


class SpoolClock(Protocol):
    """Two readings in milliseconds."""

    def wall_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
