"""Waiting for a number to be reached: by a thread, by an asyncio task, by nobody (which costs nothing)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator

import msgspec

from holdfast.core.refusal import Unavailable


class Progress:
    """A sequence that only grows, and those who wait for it. One thread moves it by `reach`; any may wait."""

    def __init__(self, reached: int, hurry: Callable[[int], None]) -> None:
        self.reached = reached
        self.fault: Unavailable | None = None
        """Why it will not grow any more."""
        self._hurry = hurry
        self._lock = threading.Lock()
        self._gates: list[tuple[int, threading.Lock]] = []
        self._futures: dict[asyncio.AbstractEventLoop, list[tuple[int, asyncio.Future[None]]]] = {}

    def reach(self, sequence: int) -> None:
        self.reached = sequence
        if self._gates or self._futures:
            self._tell()

    def reach_at_least(self, sequence: int) -> None:
        """The same where two threads move it: who comes late with less takes nothing back."""
        with self._lock:
            self.reached = max(self.reached, sequence)
        self._tell()

    def fail(self, fault: Unavailable) -> None:
        self.fault = fault
        self._tell()

    def wait(self, sequence: int, timeout_s: float | None) -> bool:
        """True when it is reached, False when time is up; raises where it never will be."""
        if self._is_over(sequence):
            return True
        gate = threading.Lock()
        gate.acquire()
        entry = (sequence, gate)
        with self._lock:
            self._gates.append(entry)
        # Whoever moves the number looks at the list after moving it, so after this second look nothing is missed.
        if not self._is_over(sequence):
            self._hurry(sequence)
            gate.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))
        with self._lock:
            if entry in self._gates:
                self._gates.remove(entry)
        return self._is_over(sequence)

    async def arrival(self, sequence: int) -> None:
        """The same for a task."""
        if self._is_over(sequence):
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._futures.setdefault(loop, []).append((sequence, future))
        if self._is_over(sequence):
            return
        self._hurry(sequence)
        await future
        self._is_over(sequence)

    def _is_over(self, sequence: int) -> bool:
        if self.reached >= sequence:
            return True
        if self.fault is not None:
            raise self.fault
        return False

    def _tell(self) -> None:
        everybody = self.fault is not None
        with self._lock:
            open_now = [gate for sequence, gate in self._gates if everybody or sequence <= self.reached]
            self._gates = [entry for entry in self._gates if not (everybody or entry[0] <= self.reached)]
            for loop in list(self._futures):
                waiting = self._futures.pop(loop)
                left = [] if everybody else [entry for entry in waiting if entry[0] > self.reached]
                if left:
                    self._futures[loop] = left
                done = [future for sequence, future in waiting if everybody or sequence <= self.reached]
                if done:
                    _wake(loop, done)
        for gate in open_now:
            gate.release()


def _wake(loop: asyncio.AbstractEventLoop, done: list[asyncio.Future[None]]) -> None:
    """One call into the loop for all of its tasks: each costs a system call."""

    def resolve() -> None:
        for future in done:
            if not future.done():
                future.set_result(None)

    try:
        loop.call_soon_threadsafe(resolve)
    except RuntimeError:  # the loop was closed; nobody waits there any more
        return


class Ticket(msgspec.Struct, frozen=True, gc=False):
    """What emit and ack return: the promise that a sequence will be durable, which one may wait for or not.

    A sequence counts only when it is spooled (SP-002); a ticket that fails has none.
    """

    sequence: int
    progress: Progress

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it is durable. False when time is up first; raises Unavailable where it never will be."""
        return self.progress.wait(self.sequence, timeout_s)

    @property
    def is_durable(self) -> bool:
        return self.progress.reached >= self.sequence

    def __await__(self) -> Generator[None, None, int]:
        yield from self.progress.arrival(self.sequence).__await__()
        return self.sequence
