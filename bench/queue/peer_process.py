"""One peer's queue, run by the Python of a scratch environment: `queue_peers.py PEER WHERE ONE BULK`.

`WHERE` is a DSN, or a folder for a peer on SQLite. It needs nothing but the standard library and the peer itself, and
prints as JSON how many jobs per second are enqueued one by one, enqueued by chunks of 1000, and done by a worker whose
work is to do nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

BATCH = 1_000
PAYLOAD = b"x" * 33


def split(count: int) -> range:
    return range(0, count, BATCH)


async def pgqueuer(dsn: str, one: int, bulk: int) -> dict[str, float]:
    import asyncpg  # noqa: PLC0415
    from pgqueuer import PgQueuer  # type: ignore[import-not-found]  # noqa: PLC0415
    from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]  # noqa: PLC0415
    from pgqueuer.queries import Queries  # type: ignore[import-not-found]  # noqa: PLC0415

    connection = await asyncpg.connect(dsn)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    began = time.perf_counter()
    for _ in range(one):
        await queries.enqueue("work", PAYLOAD)
    single, began = one / (time.perf_counter() - began), time.perf_counter()
    for _ in split(bulk):
        await queries.enqueue(["work"] * BATCH, [PAYLOAD] * BATCH, [0] * BATCH)
    many = bulk / (time.perf_counter() - began)
    worker, done, total = PgQueuer(AsyncpgDriver(await asyncpg.connect(dsn))), 0, one + bulk

    @worker.entrypoint("work")  # type: ignore[untyped-decorator]
    async def work(_: object) -> None:
        nonlocal done
        done += 1
        if done == total:
            worker.shutdown.set()

    began = time.perf_counter()
    await worker.run(batch_size=256)
    return {"one": single, "bulk": many, "drain": total / (time.perf_counter() - began)}


async def procrastinate(dsn: str, one: int, bulk: int) -> dict[str, float]:
    import procrastinate as library  # type: ignore[import-not-found]  # noqa: PLC0415

    app = library.App(connector=library.PsycopgConnector(conninfo=dsn))

    @app.task(name="work")  # type: ignore[untyped-decorator]
    async def work(payload: str) -> None:
        pass

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        for _ in range(one):
            await work.defer_async(payload="x")
        single, began = one / (time.perf_counter() - began), time.perf_counter()
        for _ in split(bulk):
            await work.batch_defer_async(*({"payload": "x"} for _ in range(BATCH)))
        many, began = bulk / (time.perf_counter() - began), time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=16, listen_notify=False)
        return {"one": single, "bulk": many, "drain": (one + bulk) / (time.perf_counter() - began)}


async def huey(folder: str, one: int, bulk: int) -> dict[str, float]:
    from huey import SqliteHuey  # type: ignore[import-not-found]  # noqa: PLC0415

    queue = SqliteHuey(filename=f"{folder}/huey.db", fsync=True, results=False)

    @queue.task()  # type: ignore[untyped-decorator]
    def work(payload: str) -> None:
        pass

    began = time.perf_counter()
    for _ in range(one):
        work("x")
    single, began = one / (time.perf_counter() - began), time.perf_counter()
    while (task := queue.dequeue()) is not None:
        queue.execute(task)
    return {"one": single, "drain": one / (time.perf_counter() - began)}


PEERS: dict[str, Callable[..., object]] = {"pgqueuer": pgqueuer, "procrastinate": procrastinate, "huey": huey}

if __name__ == "__main__":
    name, where, one_by_one, in_bulk = sys.argv[1:]
    if name == "huey":
        Path(where).mkdir(parents=True)
    print(json.dumps(asyncio.run(PEERS[name](where, int(one_by_one), int(in_bulk)))))  # type: ignore[arg-type]
