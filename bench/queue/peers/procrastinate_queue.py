"""procrastinate: deferred by its own connector, taken by its own worker, which listens for new jobs."""

from __future__ import annotations

import asyncio
import time

import procrastinate

from bench.queue.peers.contract import (
    BATCH,
    REST_S,
    Asked,
    Measured,
    enqueue_singly,
    print_measured,
    run_and_leave,
    singles,
    wait_taken,
)

CONCURRENCY = 16


def measure(asked: Asked) -> Measured:
    return run_and_leave(_measure(asked))


async def _measure(asked: Asked) -> Measured:
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=asked.where, min_size=64, max_size=64 + CONCURRENCY)
    )
    done, total, taken = 0, singles(asked.one) + asked.bulk, asyncio.Event()

    @app.task(name="work")
    async def work(payload: str) -> None:
        nonlocal done
        done += 1
        if done >= total:
            taken.set()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        single = await enqueue_singly(lambda: work.defer_async(payload="x"), asked.one)
        began = time.perf_counter()
        for _ in range(0, asked.bulk, BATCH):
            await work.batch_defer_async(*({"payload": "x"} for _ in range(BATCH)))
        bulk, began = asked.bulk / (time.perf_counter() - began), time.perf_counter()
        worker = app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
        running = asyncio.create_task(worker)
        await wait_taken(taken, running)
        drain, waits = total / (time.perf_counter() - began), []
        for _ in range(asked.leases):
            await asyncio.sleep(REST_S)
            taken.clear()
            began = time.perf_counter()
            await work.defer_async(payload="x")
            await wait_taken(taken, running)
            waits.append((time.perf_counter() - began) * 1e3)
        running.cancel()
        return Measured(single, bulk, drain, waits)


if __name__ == "__main__":
    print_measured(measure)
