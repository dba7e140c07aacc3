"""Rate limits (SEC-001): a bucket of tokens for each client, refilled with time; a request takes one."""

from __future__ import annotations

from typing import Final

from holdfast.ports import Clock

BUCKETS_MAX: Final = 10_000
"""How many buckets are kept. A forgotten client begins with a full bucket, so the longest unused go first."""


class TokenBuckets:
    """One bucket for each name. Levels are in thousandths of a token, so that a millisecond's refill is an integer."""

    def __init__(self, clock: Clock, per_s: int, burst: int) -> None:
        self._clock, self._per_s, self._full = clock, per_s, burst * 1_000
        self._levels: dict[str, tuple[int, int]] = {}

    def take(self, name: str, tokens: int = 1) -> int:
        """Take tokens and return 0; or take none and return how many milliseconds to wait."""
        now_ms, cost = self._clock.monotonic_ms(), tokens * 1_000
        level, at_ms = self._levels.pop(name, (self._full, now_ms))
        level = min(self._full, level + (now_ms - at_ms) * self._per_s)
        wait_ms = 0 if cost <= level else -(-(cost - level) // self._per_s)
        self._levels[name] = (level if wait_ms else level - cost, now_ms)
        if len(self._levels) > BUCKETS_MAX:
            del self._levels[next(iter(self._levels))]
        return wait_ms
