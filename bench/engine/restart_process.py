"""A fresh process that starts an engine on a filled store and prints, as JSON, what that took: run by `million`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import apsw

from bench.engine.contestant import bulk, call
from bench.engine.opened import POLICY, close_engine, open_engine
from bench.stores import StorePlace
from holdfast.engine.loop import Engine
from holdfast.engine.queries.accounts import CountLedger
from holdfast.engine.queries.jobs import GetQueueStatus


def memory_bytes() -> int:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def restart(spot: StorePlace, snapshots: str) -> Mapping[str, float]:
    """Seconds until running, and what memory grew by."""
    before, began = memory_bytes(), time.perf_counter()
    engine = await open_engine(spot, POLICY, snapshots)
    took = time.perf_counter() - began
    gc.collect()
    entries = (await engine.query_durable(CountLedger())).reservations
    found = {"seconds": took, "entries": entries, "bytes": memory_bytes() - before, "peak_bytes": _peak() - before}
    await close_engine(engine)
    return found


async def waiting(spot: StorePlace, snapshots: str) -> Mapping[str, float]:
    """The same with jobs that wait."""
    before, began = memory_bytes(), time.perf_counter()
    engine = await open_engine(spot, POLICY, snapshots)
    took = time.perf_counter() - began
    gc.collect()
    depth = (await engine.query_durable(GetQueueStatus())).depth
    found = {"seconds": took, "entries": depth, "bytes": memory_bytes() - before}
    await close_engine(engine)
    return found


async def yardstick(spot: StorePlace, _: str) -> Mapping[str, float]:
    """What it takes to read as many rows from the projected table into a dictionary."""
    before, began = memory_bytes(), time.perf_counter()
    rows = {row[1]: row for row in await _read_all(spot)}
    took = time.perf_counter() - began
    return {"seconds": took, "entries": len(rows), "bytes": memory_bytes() - before, "peak_bytes": _peak() - before}


async def _read_all(spot: StorePlace) -> Iterable[Any]:
    if spot.address is None:
        db = apsw.Connection(str(spot.folder / "tables.db"), flags=apsw.SQLITE_OPEN_READONLY)
        return db.execute("SELECT * FROM reservation")
    import asyncpg  # noqa: PLC0415 - an extra

    connection = await asyncpg.connect(spot.address.dsn)
    try:
        found: list[Any] = await connection.fetch(f"SELECT * FROM {spot.address.schema}.reservation")
        return found
    finally:
        await connection.close()


async def pauses(spot: StorePlace, snapshots: str) -> Mapping[str, list[float]]:
    """The longest stops in ms under load, in rounds that alternate between a frozen heap and one that is not."""
    engine = await open_engine(spot, POLICY, snapshots)
    found: dict[str, list[float]] = {}
    height = engine.undurable_state.ledger.finalized_height
    for _ in range(int(sys.argv[4])):
        for name, prepare in (("frozen", gc.freeze), ("not frozen", gc.unfreeze)):
            gc.collect()
            prepare()
            collector, loop = await _watch(engine, height := type(height)(height + 1))
            found.setdefault(f"collector, {name}", []).append(collector * 1e3)
            found.setdefault(f"event loop, {name}", []).append(loop * 1e3)
    await close_engine(engine)
    return found


async def _watch(engine: Engine, height: int) -> tuple[float, float]:
    """Longest pause of the collector and longest silence of the event loop while callers and bulks are served."""
    longest_gc = longest_turn = began_gc = 0.0

    def on_gc(phase: str, _: Mapping[str, int]) -> None:
        nonlocal longest_gc, began_gc
        if phase == "start":
            began_gc = time.perf_counter()
        else:
            longest_gc = max(longest_gc, time.perf_counter() - began_gc)

    async def tick() -> None:
        nonlocal longest_turn
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.0005)
            now = time.perf_counter()
            longest_turn, last = max(longest_turn, now - last), now

    ticking = asyncio.create_task(tick())
    gc.callbacks.append(on_gc)
    await asyncio.gather(call(engine, 16, 200, height), bulk(engine, 5_000, 1_000, height))
    gc.callbacks.remove(on_gc)
    ticking.cancel()
    return longest_gc, longest_turn


def _peak() -> int:
    """The most this process ever held; unlike getrusage, not what its parent held before it."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    work = {"restart": restart, "waiting": waiting, "yardstick": yardstick, "pauses": pauses}[sys.argv[1]]
    print(json.dumps(asyncio.run(work(StorePlace.of_environ(Path(sys.argv[2])), sys.argv[3]))))
