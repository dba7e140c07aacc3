"""The clocks of the machine, as the port `Clock`."""

from __future__ import annotations

import asyncio
import time


class MachineClock:
    """Wall time for the first reading, monotonic time while the node runs (CAN-004)."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)
