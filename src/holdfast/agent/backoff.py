"""How long to wait before trying again (EVD-004): doubling up to a cap, full jitter, from the start after progress."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.ports import Clock

Draw = Callable[[int], int]
"""A random whole number from 0 up to, but not including, the one given."""


class Backoff:
    """One row of failures. With full jitter, many who failed together do not come back together."""

    def __init__(self, base_ms: int, cap_ms: int, draw: Draw) -> None:
        self._base_ms, self._cap_ms, self._draw = base_ms, cap_ms, draw
        self.failures = 0

    def next_ms(self) -> int:
        """Anything from nothing to the bound; the bound doubles with every failure since the last progress."""
        bound = min(self._cap_ms, self._base_ms << min(self.failures, 40))
        self.failures += 1
        return self._draw(bound + 1)

    def reset(self) -> None:
        """Something went forward."""
        self.failures = 0

    async def pause(self, clock: Clock) -> None:
        await clock.sleep(self.next_ms())
