"""Wakes a thread that waits: notifying never blocks, and several notifications count as one."""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Wakeup:
    """One waiting thread, any number of notifiers. A notification without a waiter ends the next wait."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()
        self.is_waiting = False
        """The thread waits or is about to: only then it must be notified."""
        self.is_idle = False
        """It waits without a timeout: it does not see by itself that there is something to do."""

    def notify(self) -> None:
        if self._queue.empty():
            self._queue.put(None)

    def wait(self, timeout_s: float | None) -> None:
        """Return at the next notification or after the timeout."""
        try:
            self._queue.get(timeout=timeout_s)
        except Empty:
            return
