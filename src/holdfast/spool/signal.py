"""A tap on the shoulder for a thread that sleeps: giving it never blocks, and several count as one."""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Signal:
    """One sleeper, any number of givers. A signal given while nobody sleeps is found at the next sleep."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()
        self.is_awaited = False
        """The sleeper sleeps or is about to: givers need not bother otherwise."""

    def give(self) -> None:
        if self._queue.empty():
            self._queue.put(None)

    def await_(self, timeout_s: float | None) -> None:
        """Sleep until a signal comes or time is up."""
        try:
            self._queue.get(timeout=timeout_s)
        except Empty:
            return
