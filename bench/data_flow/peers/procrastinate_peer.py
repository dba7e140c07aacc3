"""procrastinate: deferred by its own connector, worked by its own worker, which inserts the result's row."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import procrastinate

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

CONCURRENCY = 32


def open_app(where: str) -> tuple[Any, Any]:
    """The app and its one task."""
    connector = procrastinate.PsycopgConnector(conninfo=where, min_size=4, max_size=CONCURRENCY)
    app = procrastinate.App(connector=connector)

    @app.task(name="work")
    async def work(number: int) -> None:
        await connector.execute_query_async(INSERT_RESULT.format("%(id)s", "%(value)s"), id=number, value="done")

    return app, work


def run_worker(where: str) -> None:
    async def run() -> None:
        app, _ = open_app(where)
        async with app.open_async():
            say_up()
            await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)

    asyncio.run(run())


def measure(sizes: Sizes) -> Figures:
    return asyncio.run(_measure(sizes))


async def _measure(sizes: Sizes) -> Figures:
    app, work = open_app(sizes.where)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await app.connector.execute_query_async(RESULT_TABLE)
        with running_worker(sizes.where) as worker:
            await _run_jobs(app, work, sizes.callers, 0, sizes.callers)
            began = time.perf_counter()
            await _run_jobs(app, work, sizes.callers, sizes.callers, sizes.jobs)
            way, done = sizes.jobs / (time.perf_counter() - began), sizes.callers + sizes.jobs
            drain = await _drain(app, work, worker, sizes, done)
            done += sizes.jobs
            return Figures(way, drain, [await _alone_ms(app, work, done + n) for n in range(sizes.alone)])


async def _defer(work: Any, callers: int, first: int, jobs: int) -> None:
    async def call(mine: range) -> None:
        for number in mine:
            await work.defer_async(number=number)

    await asyncio.gather(*(call(range(first + each, first + jobs, callers)) for each in range(callers)))


async def _run_jobs(app: Any, work: Any, callers: int, first: int, jobs: int) -> None:
    await _defer(work, callers, first, jobs)
    await _wait_results(app, first + jobs, MANY_POLL_S)


async def _drain(app: Any, work: Any, worker: Worker, sizes: Sizes, first: int) -> float:
    worker.pause()
    await _defer(work, sizes.callers, first, sizes.jobs)
    began = time.perf_counter()
    worker.resume()
    await _wait_results(app, first + sizes.jobs, MANY_POLL_S)
    return sizes.jobs / (time.perf_counter() - began)


async def _alone_ms(app: Any, work: Any, number: int) -> float:
    began = time.perf_counter()
    await work.defer_async(number=number)
    await _wait_results(app, number + 1, ALONE_POLL_S)
    return (time.perf_counter() - began) * 1e3


async def _wait_results(app: Any, count: int, every_s: float) -> None:
    while (await app.connector.execute_query_one_async(COUNT_RESULTS))["count"] < count:  # noqa: ASYNC110
        await asyncio.sleep(every_s)


if __name__ == "__main__":
    main(measure, run_worker)
