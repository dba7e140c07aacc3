"""Waiting until a sequence is reached, from threads and asyncio tasks. Without waiters it costs nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator

import msgspec

from holdfast.core.base.errors import Unavailable


class SequenceProgress:
    """A sequence that only grows, and its waiters. One thread calls `advance`; any thread or task may wait."""

    def __init__(self, reached: int, request_flush: Callable[[int], None]) -> None:
        self.reached = reached
        self.fault: Unavailable | None = None
        """Why it does not grow any more."""
        self._request_flush = request_flush
        self._lock = threading.Lock()
        self._gates: list[tuple[int, threading.Lock]] = []
        self._futures: dict[asyncio.AbstractEventLoop, list[tuple[int, asyncio.Future[None]]]] = {}

    def advance(self, sequence: int) -> None:
        self.reached = sequence
        if self._gates or self._futures:
            self._wake_waiters()

    def advance_at_least(self, sequence: int) -> None:
        """`advance` where two threads call it: a lower sequence changes nothing."""
        with self._lock:
            self.reached = max(self.reached, sequence)
        self._wake_waiters()

    def fail(self, fault: Unavailable) -> None:
        self.fault = fault
        self._wake_waiters()

    def wait(self, sequence: int, timeout_s: float | None) -> bool:
        """True when it is reached, False after the timeout; raises where it never will be."""
        if self._is_reached(sequence):
            return True
        gate = threading.Lock()
        gate.acquire()
        entry = (sequence, gate)
        with self._lock:
            self._gates.append(entry)
        # `advance` reads the list after it has moved the sequence: after this second check nothing is missed.
        if not self._is_reached(sequence):
            self._request_flush(sequence)
            gate.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))
        with self._lock:
            if entry in self._gates:
                self._gates.remove(entry)
        return self._is_reached(sequence)

    async def wait_async(self, sequence: int) -> None:
        """`wait` for a task."""
        if self._is_reached(sequence):
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._futures.setdefault(loop, []).append((sequence, future))
        if self._is_reached(sequence):
            return
        self._request_flush(sequence)
        await future
        self._is_reached(sequence)

    def _is_reached(self, sequence: int) -> bool:
        if self.reached >= sequence:
            return True
        if self.fault is not None:
            raise self.fault
        return False

    def _wake_waiters(self) -> None:
        is_failed = self.fault is not None
        with self._lock:
            released = [gate for sequence, gate in self._gates if is_failed or sequence <= self.reached]
            self._gates = [entry for entry in self._gates if not (is_failed or entry[0] <= self.reached)]
            for loop in list(self._futures):
                waiting = self._futures.pop(loop)
                left = [] if is_failed else [entry for entry in waiting if entry[0] > self.reached]
                if left:
                    self._futures[loop] = left
                done = [future for sequence, future in waiting if is_failed or sequence <= self.reached]
                if done:
                    _resolve_in_loop(loop, done)
        for gate in released:
            gate.release()


def _resolve_in_loop(loop: asyncio.AbstractEventLoop, done: list[asyncio.Future[None]]) -> None:
    """One call into the loop for all of its tasks: each call costs a system call."""
    try:
        loop.call_soon_threadsafe(_resolve, done)
    except RuntimeError:  # the loop was closed, with its tasks
        return


def _resolve(done: list[asyncio.Future[None]]) -> None:
    for future in done:
        if not future.done():
            future.set_result(None)


class Ticket(msgspec.Struct, frozen=True, gc=False):
    """What emit and ack return: a promise that a sequence will be durable. Waiting for it is optional.

    A sequence counts only when it is spooled (SP-002); that of a failed ticket does not.
    """

    sequence: int
    progress: SequenceProgress

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it is durable; False after the timeout. Raises Unavailable where it never will be."""
        return self.progress.wait(self.sequence, timeout_s)

    @property
    def is_durable(self) -> bool:
        return self.progress.reached >= self.sequence

    def __await__(self) -> Generator[None, None, int]:
        yield from self.progress.wait_async(self.sequence).__await__()
        return self.sequence
