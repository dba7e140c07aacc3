"""One reading of time per batch, never backwards (CAN-004)."""

from __future__ import annotations

from holdfast.ports import Clock


class BatchClock:
    """Starts at max(wall clock, last stored reading) and advances by the monotonic clock alone.

    A wall clock that is not believed (CAN-006) is replaced by `instead_ms`, what a better witness says.
    """

    def __init__(self, clock: Clock, last_stored_ms: int, instead_ms: int | None = None) -> None:
        self._clock = clock
        self._start_ms = max(clock.wall_ms() if instead_ms is None else instead_ms, last_stored_ms)
        self._zero_ms = clock.monotonic_ms()

    def now_ms(self) -> int:
        return self._start_ms + max(0, self._clock.monotonic_ms() - self._zero_ms)
