"""procrastinate: deferred by its own connector, taken by its own worker, which listens for new jobs."""

from __future__ import annotations

import time

import procrastinate

from bench.queue.peers.contract import (
    BATCH,
    Asked,
    Measured,
    Taking,
    enqueue_singly,
    print_measured,
    run_and_leave,
    singles,
)

CONCURRENCY = 16


def measure(asked: Asked) -> Measured:
    return run_and_leave(_measure(asked))


async def _measure(asked: Asked) -> Measured:
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=asked.where, min_size=64, max_size=64 + CONCURRENCY)
    )
    taking = Taking(singles(asked.one) + asked.bulk)

    @app.task(name="work")
    async def work(payload: str) -> None:
        taking.count()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        single = await enqueue_singly(lambda: work.defer_async(payload="x"), asked.one)
        began = time.perf_counter()
        for _ in range(0, asked.bulk, BATCH):
            await work.batch_defer_async(*({"payload": "x"} for _ in range(BATCH)))
        bulk = asked.bulk / (time.perf_counter() - began)
        worker = app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
        drain, waits = await taking.measure(worker, lambda: work.defer_async(payload="x"), asked.leases)
        return Measured(single, bulk, drain, waits)


if __name__ == "__main__":
    print_measured(measure)
