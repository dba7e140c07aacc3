"""The client of a peer on asyncio whose jobs insert their results themselves: the same turn for each of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.data_flow.peers.contract import ALONE_POLL_S, MANY_POLL_S, Figures, Sizes, Worker, running_worker


class AsyncClient:
    """How a peer enqueues the job with this number, and counts the results that are there."""

    def __init__(
        self, enqueue: Callable[[int], Awaitable[object]], count_results: Callable[[], Awaitable[int]]
    ) -> None:
        self._enqueue, self._count_results = enqueue, count_results

    async def measure(self, sizes: Sizes) -> Figures:
        with running_worker(sizes.where) as worker:
            await self._enqueue_many(sizes.callers, 0, sizes.callers)
            await self._wait_results(sizes.callers, MANY_POLL_S)
            began, done = time.perf_counter(), sizes.callers + sizes.jobs
            await self._enqueue_many(sizes.callers, sizes.callers, sizes.jobs)
            await self._wait_results(done, MANY_POLL_S)
            way = sizes.jobs / (time.perf_counter() - began)
            drain = await self._drain(worker, sizes, done)
            done += sizes.jobs
            return Figures(way, drain, [await self._alone_ms(done + number) for number in range(sizes.alone)])

    async def _enqueue_many(self, callers: int, first: int, jobs: int) -> None:
        async def call(mine: range) -> None:
            for number in mine:
                await self._enqueue(number)

        await asyncio.gather(*(call(range(first + each, first + jobs, callers)) for each in range(callers)))

    async def _drain(self, worker: Worker, sizes: Sizes, first: int) -> float:
        worker.pause()
        await self._enqueue_many(sizes.callers, first, sizes.jobs)
        began = time.perf_counter()
        worker.resume()
        await self._wait_results(first + sizes.jobs, MANY_POLL_S)
        return sizes.jobs / (time.perf_counter() - began)

    async def _alone_ms(self, number: int) -> float:
        began = time.perf_counter()
        await self._enqueue(number)
        await self._wait_results(number + 1, ALONE_POLL_S)
        return (time.perf_counter() - began) * 1e3

    async def _wait_results(self, count: int, every_s: float) -> None:
        while await self._count_results() < count:  # noqa: ASYNC110 - it looks into a database
            await asyncio.sleep(every_s)
