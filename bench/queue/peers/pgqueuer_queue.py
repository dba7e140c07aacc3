"""pgqueuer: its own queries and its own worker, which listens for new jobs."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.queue.peers.contract import (
    BATCH,
    PAYLOAD,
    REST_S,
    Asked,
    Measured,
    enqueue_singly,
    print_measured,
    run_and_leave,
    singles,
    wait_taken,
)

FETCHED = 256
LOOKS_EVERY = timedelta(seconds=1)
"""A notice that comes while it ends a batch is lost; its default is then to look again after 30 s."""


def measure(asked: Asked) -> Measured:
    return run_and_leave(_measure(asked))


async def _measure(asked: Asked) -> Measured:
    queries = Queries(AsyncpgPoolDriver(await asyncpg.create_pool(asked.where, min_size=64, max_size=64)))
    await queries.install()
    single = await enqueue_singly(lambda: queries.enqueue("work", PAYLOAD), asked.one)
    began = time.perf_counter()
    for _ in range(0, asked.bulk, BATCH):
        await queries.enqueue(["work"] * BATCH, [PAYLOAD] * BATCH, [0] * BATCH)
    bulk = asked.bulk / (time.perf_counter() - began)
    worker, done, total = (
        PgQueuer(AsyncpgDriver(await asyncpg.connect(asked.where))),
        0,
        singles(asked.one) + asked.bulk,
    )
    taken = asyncio.Event()

    @worker.entrypoint("work")
    async def work(_: object) -> None:
        nonlocal done
        done += 1
        if done >= total:
            taken.set()

    began = time.perf_counter()
    running = asyncio.create_task(worker.run(batch_size=FETCHED, dequeue_timeout=LOOKS_EVERY))
    await wait_taken(taken, running)
    drain, waits = total / (time.perf_counter() - began), []
    for _ in range(asked.leases):
        await asyncio.sleep(REST_S)
        taken.clear()
        began = time.perf_counter()
        await queries.enqueue("work", PAYLOAD)
        await wait_taken(taken, running)
        waits.append((time.perf_counter() - began) * 1e3)
    running.cancel()
    return Measured(single, bulk, drain, waits)


if __name__ == "__main__":
    print_measured(measure)
