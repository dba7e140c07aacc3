"""DBOS Transact: a workflow without steps, whose status and result its system database stores, on both stores."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS, DBOSClient, DBOSConfig

from bench.data_flow.peers.contract import PATIENCE_S, Figures, Sizes, main

QUEUE, POLL_S = "drained", 0.01


@DBOS.workflow(name="work")
def work(number: int) -> int:
    return number


def measure(sizes: Sizes) -> Figures:
    """Called by its callers' threads, which is its fastest way; drained from its queue."""
    config: DBOSConfig = {"name": "bench", "system_database_url": sizes.where, "console_log_level": "ERROR"}
    if sizes.where.startswith("postgresql"):
        config["sys_db_pool_size"] = max(20, sizes.callers)
    DBOS(config=config)
    DBOS.launch()
    way = _way(sizes)
    alone = [_timed_ms(number) for number in range(sizes.alone)]
    DBOS.register_queue(QUEUE, polling_interval_sec=POLL_S)
    DBOS.destroy()
    return Figures(way, _drain(config, sizes), alone)


def _way(sizes: Sizes) -> float:
    numbers = range(sizes.jobs)
    with ThreadPoolExecutor(sizes.callers) as callers:
        began = time.perf_counter()
        assert list(callers.map(work, numbers)) == list(numbers)
        return sizes.jobs / (time.perf_counter() - began)


def _timed_ms(number: int) -> float:
    began = time.perf_counter()
    work(number)
    return (time.perf_counter() - began) * 1e3


def _drain(config: DBOSConfig, sizes: Sizes) -> float:
    """Nobody works while the jobs are enqueued; the clock runs from when its executor has started."""
    client = DBOSClient(system_database_url=sizes.where)
    with ThreadPoolExecutor(sizes.callers) as callers:
        options = {"queue_name": QUEUE, "workflow_name": "work"}
        handles = list(callers.map(lambda number: client.enqueue(options, number), range(sizes.jobs)))
    DBOS(config=config)
    DBOS.launch()
    began = time.perf_counter()
    for handle in handles:
        handle.get_result(polling_interval_sec=POLL_S)
        assert time.perf_counter() - began < PATIENCE_S
    return sizes.jobs / (time.perf_counter() - began)


if __name__ == "__main__":
    main(measure)
