"""pgqueuer: its own queries and its own worker, which listens for new jobs."""

from __future__ import annotations

import time
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.queue.peers.contract import (
    BATCH,
    PAYLOAD,
    Asked,
    Measured,
    Taking,
    enqueue_singly,
    print_measured,
    run_and_leave,
    singles,
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
    worker, taking = (
        PgQueuer(AsyncpgDriver(await asyncpg.connect(asked.where))),
        Taking(singles(asked.one) + asked.bulk),
    )

    @worker.entrypoint("work")
    async def work(_: object) -> None:
        taking.count()

    running = worker.run(batch_size=FETCHED, dequeue_timeout=LOOKS_EVERY)
    drain, waits = await taking.measure(running, lambda: queries.enqueue("work", PAYLOAD), asked.leases)
    return Measured(single, bulk, drain, waits)


if __name__ == "__main__":
    print_measured(measure)
