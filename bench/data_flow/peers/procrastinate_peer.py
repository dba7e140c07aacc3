"""procrastinate: deferred by its own connector, worked by its own worker, which inserts the result's row."""

from __future__ import annotations

import asyncio
from typing import Any

import procrastinate

from bench.data_flow.peers.async_client import AsyncClient
from bench.data_flow.peers.contract import COUNT_RESULTS, INSERT_RESULT, RESULT_TABLE, Figures, Sizes, main, say_up

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

    async def count_results() -> int:
        return int((await app.connector.execute_query_one_async(COUNT_RESULTS))["count"])

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await app.connector.execute_query_async(RESULT_TABLE)
        return await AsyncClient(lambda number: work.defer_async(number=number), count_results).measure(sizes)


if __name__ == "__main__":
    main(measure, run_worker)
