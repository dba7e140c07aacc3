"""What every baseline of the queue does, and how it is timed: four steps of a job's life, chunk by chunk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

FEE, PAID, UNITS = 100, 6, 2
WAITS_MS, T_MS = 86_400_000, 600_000
PROVIDERS: Final = [f"provider-{n}" for n in range(4)]
SPEC: Final = b'{"model":"echo","prompt":"hello"}'


class BaselineQueue(Protocol):
    """Four steps of many jobs at a time; a chunk is one transaction a step."""

    async def enqueue(self, ids: Sequence[bytes]) -> object: ...

    async def drain(self, size: int) -> int:
        """Assign, acknowledge and complete the first `size` jobs in order; how many there were."""
        ...

    async def close(self) -> None: ...


async def enqueue_all(hand: BaselineQueue, ids: Sequence[bytes], size: int) -> float:
    """Jobs taken in a second."""
    began = time.perf_counter()
    for chunk in split(ids, size):
        await hand.enqueue(chunk)
    return len(ids) / (time.perf_counter() - began)


async def drain_all(hand: BaselineQueue, size: int) -> float:
    """Waiting jobs brought to their end a second."""
    began, done = time.perf_counter(), 0
    while many := await hand.drain(size):
        done += many
    return done / (time.perf_counter() - began)


async def run_lives(hand: BaselineQueue, ids: Sequence[bytes], size: int) -> float:
    """Whole lives a second: each chunk is admitted and completed."""
    began = time.perf_counter()
    for chunk in split(ids, size):
        await hand.enqueue(chunk)
        assert await hand.drain(size) == len(chunk)
    return len(ids) / (time.perf_counter() - began)


def split(ids: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (ids[at : at + size] for at in range(0, len(ids), size))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
