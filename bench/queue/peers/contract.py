"""What every peer measures: `python -m bench.queue.peers.X WHERE ONE BULK LEASES` prints one line of JSON.

A peer's worker does nothing. `WHERE` is a DSN, or a folder for a peer on SQLite.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

BATCH = 1_000
CLIENTS = (1, 16, 64)
PAYLOAD = b"x" * 33
REST_S = 0.02
"""Before a job whose way is timed: its worker has finished the last one and waits."""


class Asked(NamedTuple):
    """How much is asked for: single enqueues of 16 clients, enqueues in bulk, jobs that are waited for."""

    where: str
    one: int
    bulk: int
    leases: int


class Measured(NamedTuple):
    """Jobs per second, and milliseconds from asking until the worker has a job that waited for nobody."""

    single: dict[int, float]
    bulk: float
    """0: it has no way of its own to enqueue many."""
    drain: float
    lease_ms: list[float]


def share(one: int, clients: int) -> int:
    """One client at a time is slow: as many jobs as take about as long."""
    return max(clients, one * min(clients, 16) // 16 // clients * clients)


def singles(one: int) -> int:
    """All that are enqueued one by one; each client's first is not timed, since it may have to connect."""
    return sum(share(one, clients) + clients for clients in CLIENTS)


async def enqueue_singly(enqueue: Callable[[], Awaitable[object]], one: int) -> dict[int, float]:
    """Closed loops of 1, 16 and 64 clients."""
    found = {}
    for clients in CLIENTS:
        count = share(one, clients)

        async def client(jobs: int) -> None:
            for _ in range(jobs):
                await enqueue()

        await asyncio.gather(*(client(1) for _ in range(clients)))
        began = time.perf_counter()
        await asyncio.gather(*(client(count // clients) for _ in range(clients)))
        found[clients] = count / (time.perf_counter() - began)
    return found


class Taking:
    """What a peer's worker has taken: its task calls `count`, its client waits."""

    def __init__(self, total: int) -> None:
        self._done, self.total, self._taken = 0, total, asyncio.Event()

    def count(self) -> None:
        self._done += 1
        if self._done >= self.total:
            self._taken.set()

    async def measure(
        self, worker: Coroutine[Any, Any, None], enqueue: Callable[[], Awaitable[object]], leases: int
    ) -> tuple[float, list[float]]:
        """Start the worker: jobs a second until all are taken, then the milliseconds of jobs that are alone."""
        began, running = time.perf_counter(), asyncio.create_task(worker)
        await self._wait(running)
        drain, waits = self.total / (time.perf_counter() - began), []
        for _ in range(leases):
            await asyncio.sleep(REST_S)
            self._taken.clear()
            began = time.perf_counter()
            await enqueue()
            await self._wait(running)
            waits.append((time.perf_counter() - began) * 1e3)
        running.cancel()
        return drain, waits

    async def _wait(self, worker: asyncio.Task[None]) -> None:
        """A worker that has ended takes nothing more, and says why."""
        waiting = asyncio.create_task(self._taken.wait())
        await asyncio.wait({waiting, worker}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            worker.result()
            raise AssertionError("the worker has ended")


def run_and_leave(measuring: Coroutine[Any, Any, Measured]) -> Measured:
    """Without `asyncio.run`, whose end waits for a worker that may not let itself be cancelled."""
    return asyncio.new_event_loop().run_until_complete(measuring)


def print_measured(measure: Callable[[Asked], Measured]) -> None:
    where, *sizes = sys.argv[1:]
    print(json.dumps(measure(Asked(where, *map(int, sizes)))._asdict()), flush=True)
    os._exit(0)  # threads of a peer may wait for ever
