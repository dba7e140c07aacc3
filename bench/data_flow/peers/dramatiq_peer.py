"""dramatiq with dramatiq-pg, which is its broker and stores its results on PostgreSQL."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dramatiq
import psycopg2
from dramatiq.middleware import Prometheus, default_middleware
from dramatiq_pg import PostgresBroker
from dramatiq_pg.schema import generate_init_sql
from psycopg2.pool import ThreadedConnectionPool

from bench.data_flow.peers.contract import (
    ALONE_POLL_S,
    MANY_POLL_S,
    Figures,
    Sizes,
    Worker,
    main,
    running_worker,
    say_up,
    wait_until,
)

THREADS = 8
COUNT_DONE = "SELECT count(*) FROM dramatiq.queue WHERE state = 'done' AND result IS NOT NULL"


def open_broker(where: str, connections: int) -> Any:
    """The broker with its one actor, and the actor."""
    middleware = [each() for each in default_middleware if each is not Prometheus]  # it needs dramatiq's own launcher
    pool = ThreadedConnectionPool(0, connections, where)
    broker = PostgresBroker(pool=pool, results=True, middleware=middleware)
    dramatiq.set_broker(broker)

    @dramatiq.actor(store_results=True, broker=broker)
    def work(number: int) -> int:
        return number

    return broker, work


def run_worker(where: str) -> None:
    broker, _ = open_broker(where, 2 * THREADS + 4)
    dramatiq.Worker(broker, worker_threads=THREADS).start()
    say_up()
    threading.Event().wait()


def measure(sizes: Sizes) -> Figures:
    watching = psycopg2.connect(sizes.where)
    watching.autocommit = True
    watch = watching.cursor()
    watch.execute(generate_init_sql())
    _, work = open_broker(sizes.where, sizes.callers + 2)

    def wait_done(count: int, every_s: float) -> None:
        def is_done() -> bool:
            watch.execute(COUNT_DONE)
            return bool(watch.fetchone()[0] >= count)

        wait_until(is_done, every_s)

    with running_worker(sizes.where) as worker:
        _send(work, sizes.callers, sizes.callers)
        wait_done(sizes.callers, MANY_POLL_S)
        began, done = time.perf_counter(), sizes.callers + sizes.jobs
        _send(work, sizes.callers, sizes.jobs)
        wait_done(done, MANY_POLL_S)
        way = sizes.jobs / (time.perf_counter() - began)
        drain, done = _drain(work, worker, wait_done, sizes, done), done + sizes.jobs
        return Figures(way, drain, [_alone_ms(work, wait_done, done + n + 1) for n in range(sizes.alone)])


def _send(work: Any, callers: int, jobs: int) -> None:
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(work.send, range(jobs)))


def _drain(work: Any, worker: Worker, wait_done: Any, sizes: Sizes, done: int) -> float:
    worker.pause()
    _send(work, sizes.callers, sizes.jobs)
    began = time.perf_counter()
    worker.resume()
    wait_done(done + sizes.jobs, MANY_POLL_S)
    return sizes.jobs / (time.perf_counter() - began)


def _alone_ms(work: Any, wait_done: Any, done: int) -> float:
    began = time.perf_counter()
    work.send(done)
    wait_done(done, ALONE_POLL_S)
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    main(measure, run_worker)
