"""How long to wait before a retry (EVD-004): doubling up to a cap, with full jitter, reset by progress."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.ports import Clock

Draw = Callable[[int], int]
"""A random integer from 0 up to, but not including, its argument."""


class Backoff:
    """Consecutive failures. With full jitter, clients that failed together do not retry together."""

    def __init__(self, base_ms: int, cap_ms: int, draw: Draw) -> None:
        self._base_ms, self._cap_ms, self._draw = base_ms, cap_ms, draw
        self.failures = 0

    def next_ms(self) -> int:
        """A random time up to a bound, which doubles with every failure since the last progress."""
        bound = min(self._cap_ms, self._base_ms << min(self.failures, 40))
        self.failures += 1
        return self._draw(bound + 1)

    def reset(self) -> None:
        """There was progress."""
        self.failures = 0

    async def pause(self, clock: Clock) -> None:
        await clock.sleep(self.next_ms())
