"""pgqueuer: enqueued by its own queries, worked by its own worker, which inserts the result's row."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.data_flow.peers.async_client import AsyncClient
from bench.data_flow.peers.contract import COUNT_RESULTS, INSERT_RESULT, RESULT_TABLE, Figures, Sizes, main, say_up

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
    client = AsyncClient(
        lambda number: queries.enqueue("work", str(number).encode()), lambda: pool.fetchval(COUNT_RESULTS)
    )
    return await client.measure(sizes)


if __name__ == "__main__":
    main(measure, run_worker)
