"""huey on SQLite with fsync: threads that enqueue, and its own consumer, which looks for jobs at its own pace."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from huey import SqliteHuey

from bench.queue.peers.contract import CLIENTS, REST_S, Asked, Measured, print_measured, share


def measure(asked: Asked) -> Measured:
    Path(asked.where).mkdir(parents=True)
    queue, taken = SqliteHuey(filename=f"{asked.where}/huey.db", fsync=True, results=False), threading.Event()

    @queue.task()
    def work(payload: str) -> None:
        taken.set()

    single, total = {}, 0
    for clients in CLIENTS:
        count = share(asked.one, clients)
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(work, ["x"] * clients))
            began = time.perf_counter()
            list(pool.map(work, ["x"] * count))
            single[clients] = count / (time.perf_counter() - began)
        total += count + clients
    began = time.perf_counter()
    while (task := queue.dequeue()) is not None:
        queue.execute(task)
    drain = total / (time.perf_counter() - began)
    queue.create_consumer(workers=1).start()
    return Measured(single, 0, drain, [_taken_ms(work, taken) for _ in range(asked.leases)])


def _taken_ms(work: object, taken: threading.Event) -> float:
    time.sleep(REST_S)
    taken.clear()
    began = time.perf_counter()
    work("x")  # type: ignore[operator]
    assert taken.wait(30)
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    print_measured(measure)
