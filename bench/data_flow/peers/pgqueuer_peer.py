"""pgqueuer: enqueued by its own queries, worked by its own worker, which inserts the result's row."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.data_flow.peers.contract import (
    ALONE_POLL_S,
    COUNT_RESULTS,
    INSERT_RESULT,
    MANY_POLL_S,
    RESULT_TABLE,
    Figures,
    Sizes,
    Worker,
    main,
    running_worker,
    say_up,
)

BATCH, RESULT_CONNECTIONS = 64, 8
LOOKS_EVERY = timedelta(seconds=1)
"""A notice that comes while it ends a batch is lost; its default is then to look again after 30 s."""


def run_worker(where: str) -> None:
    async def run() -> None:
        worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(where)))
        results = await asyncpg.create_pool(where, min_size=RESULT_CONNECTIONS, max_size=RESULT_CONNECTIONS)

        @worker.entrypoint("work")
        async def work(job: Any) -> None:
            await results.execute(INSERT_RESULT.format("$1", "$2"), int(job.payload), "done")

        say_up()
        await worker.run(batch_size=BATCH, dequeue_timeout=LOOKS_EVERY)

    asyncio.run(run())


def measure(sizes: Sizes) -> Figures:
    return asyncio.run(_measure(sizes))


async def _measure(sizes: Sizes) -> Figures:
    pool = await asyncpg.create_pool(sizes.where, min_size=2, max_size=sizes.callers)
    queries = Queries(AsyncpgPoolDriver(pool))
    await queries.install()
    await pool.execute(RESULT_TABLE)
    with running_worker(sizes.where) as worker:
        await _enqueue(queries, sizes.callers, 0, sizes.callers)
        await _wait_results(pool, sizes.callers, MANY_POLL_S)
        began = time.perf_counter()
        await _enqueue(queries, sizes.callers, sizes.callers, sizes.jobs)
        done = sizes.callers + sizes.jobs
        await _wait_results(pool, done, MANY_POLL_S)
        way = sizes.jobs / (time.perf_counter() - began)
        drain = await _drain(pool, queries, worker, sizes, done)
        done += sizes.jobs
        return Figures(way, drain, [await _alone_ms(pool, queries, done + n) for n in range(sizes.alone)])


async def _enqueue(queries: Any, callers: int, first: int, jobs: int) -> None:
    async def call(mine: range) -> None:
        for number in mine:
            await queries.enqueue("work", str(number).encode())

    await asyncio.gather(*(call(range(first + each, first + jobs, callers)) for each in range(callers)))


async def _drain(pool: Any, queries: Any, worker: Worker, sizes: Sizes, first: int) -> float:
    worker.pause()
    await _enqueue(queries, sizes.callers, first, sizes.jobs)
    began = time.perf_counter()
    worker.resume()
    await _wait_results(pool, first + sizes.jobs, MANY_POLL_S)
    return sizes.jobs / (time.perf_counter() - began)


async def _alone_ms(pool: Any, queries: Any, number: int) -> float:
    began = time.perf_counter()
    await queries.enqueue("work", str(number).encode())
    await _wait_results(pool, number + 1, ALONE_POLL_S)
    return (time.perf_counter() - began) * 1e3


async def _wait_results(pool: Any, count: int, every_s: float) -> None:
    while await pool.fetchval(COUNT_RESULTS) < count:  # noqa: ASYNC110 - it looks into a database
        await asyncio.sleep(every_s)


if __name__ == "__main__":
    main(measure, run_worker)
