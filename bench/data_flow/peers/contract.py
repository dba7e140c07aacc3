"""What every peer measures, and how its process is asked: `python -m bench.data_flow.peers.X WHERE CALLERS JOBS ALONE`.

A peer's job does nothing and its result is stored before the client is told. Callers, jobs and stores are those of the
node's turn in the same round. Peers that leave results to the job itself insert a row, which is the least one can do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

WORK, UP = "work", b"up\n"
RESULT_TABLE = "CREATE TABLE result (id bigint PRIMARY KEY, value text NOT NULL)"
INSERT_RESULT = "INSERT INTO result VALUES ({}, {})"
COUNT_RESULTS = "SELECT count(*) FROM result"
ALONE_POLL_S, MANY_POLL_S = 0.0005, 0.005
"""How often a client looks for one result, and for many."""
PATIENCE_S = 300.0


class Sizes(NamedTuple):
    """How much is asked for in one turn."""

    where: str
    callers: int
    jobs: int
    alone: int


class Figures(NamedTuple):
    """Jobs per second, enqueued meanwhile and enqueued before; milliseconds of each job that was alone."""

    way: float
    drain: float
    alone_ms: list[float]


def main(measure: Callable[[Sizes], Figures], work: Callable[[str], None] | None = None) -> None:
    """Measure and print, or be the worker that `running_worker` has started."""
    where, *sizes = sys.argv[1:]
    if sizes == [WORK]:
        assert work is not None
        work(where)
        return
    print(json.dumps(measure(Sizes(where, *map(int, sizes)))._asdict()), flush=True)
    os._exit(0)  # threads of a peer may wait for ever


class Worker:
    """A peer's worker in its own process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def running_worker(where: str) -> Iterator[Worker]:
    command = [sys.executable, "-m", _module(), where, WORK]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == UP, "the worker did not start"
        yield Worker(process)
    finally:
        process.kill()
        process.wait()


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    assert spec is not None
    return spec.name


def say_up() -> None:
    print(UP.decode(), end="", flush=True)


def wait_until(is_done: Callable[[], bool], every_s: float) -> None:
    end = time.perf_counter() + PATIENCE_S
    while not is_done():
        assert time.perf_counter() < end, "the jobs did not end"
        time.sleep(every_s)
