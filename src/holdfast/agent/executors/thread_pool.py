"""Threads for executors: each does one piece of work at a time, waits a moment for the next, and ends.

A pool of a fixed size would let an executor that ignores `cancel` block the others: here work without an idle thread
gets a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

IDLE_S: Final = 1.0
"""How long a thread without work stays."""
Work = Callable[[], None]


class ThreadPool:
    """As many threads as there is work at a time, and a few that were just done."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Work]] = []

    def run(self, work: Work) -> None:
        """Have this done by a thread; it must not raise."""
        with self._lock:
            if self._idle:
                self._idle.pop().put(work)
                return
        threading.Thread(target=self._work_on, args=(work,), name="executor", daemon=True).start()

    def _work_on(self, work: Work) -> None:
        inbox: SimpleQueue[Work] = SimpleQueue()
        while True:
            work()
            with self._lock:
                self._idle.append(inbox)
            try:
                work = inbox.get(timeout=self._idle_s)
            except Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                work = inbox.get()  # it was given work in this very moment


THREADS: Final = ThreadPool()
"""Of this process."""
