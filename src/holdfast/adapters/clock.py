"""The clocks of the machine, as the port `Clock`."""

from __future__ import annotations

import asyncio
import ctypes
import time
from typing import Final

_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_TIMEX_BYTES: Final = 512
"""More than the kernel's record has; all zero it asks and changes nothing."""
_TIME_ERROR: Final = 5
"""What adjtimex returns for a clock that is not synchronised."""


class MachineClock:
    """Wall time for the first reading, monotonic time while the node runs (CAN-004)."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000

    def is_synchronized(self) -> bool:
        try:
            adjtimex = ctypes.CDLL(None).adjtimex
        except (AttributeError, OSError):
            return True  # a system that does not tell is no witness
        return bool(adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)) not in (_TIME_ERROR, -1))

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)
