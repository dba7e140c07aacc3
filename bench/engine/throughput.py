"""Commands per second: single callers, chunks without callers, bulks, and SQL written by hand."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from statistics import median, quantiles

from bench.engine.contestant import bulk, call, chunks, ids, new_engine, settle
from bench.engine.opened import close_engine
from bench.measure import Table, at_least, interleave, ratios_of, table
from bench.stores import Store

ONE_BY_ONE = "hand-written SQL, a transaction a command"
BULK = "hand-written SQL, 1000 commands a transaction"
CALLERS = (1, 16, 64)


async def compare_callers(store: Store, rounds: int, scale: float) -> Table:
    """Closed loops of 1, 16 and 64 callers against chunks of the same sizes without callers and hand-written SQL."""
    hand = await store.open_baseline("callers/hand")
    engine = await new_engine(store.place("callers/engine"))
    gc.collect()
    gc.freeze()
    heights = iter(range(1, 10**9))
    waits: dict[int, list[float]] = {size: [] for size in CALLERS}
    counts = {size: max(size, int(scale * total)) for size, total in zip(CALLERS, (1_500, 9_600, 19_200), strict=True)}

    async def by_hand(_: int) -> Mapping[str, float]:
        return {
            ONE_BY_ONE: await hand.run(ids(int(scale * 1_500)), 1),
            BULK: await hand.run(ids(int(scale * 20_000)), 1000),
        }

    async def by_chunks(_: int) -> Mapping[str, float]:
        found = {}
        for size in CALLERS:
            height = next(heights)
            found[f"chunks of {size}"] = await chunks(engine, counts[size], size, height)
            await settle(engine, height)
        return found

    async def by_engine(_: int) -> Mapping[str, float]:
        found = {}
        for size in CALLERS:
            height = next(heights)
            found[f"engine, {size} callers"], took = await call(engine, size, counts[size] // size, height)
            waits[size] += took
            await settle(engine, height)
        return found

    figures = await interleave((by_hand, by_chunks, by_engine), rounds)
    order = [ONE_BY_ONE, BULK]
    for size in CALLERS:
        order += [f"chunks of {size}", f"engine, {size} callers"]
    found = table(
        store.named("engine-callers"),
        f"Reserve and charge, one by one, {store.title}",
        "commands/s",
        figures,
        order,
        ONE_BY_ONE,
    )
    for size, limit in ((16, 0.85), (64, 0.7)):
        ratios = ratios_of(figures[f"engine, {size} callers"], figures[f"chunks of {size}"])
        found.goals.append(at_least(f"{size} callers to chunks", ratios, limit))
    found.notes += [f"{size} callers: {_latency(waits[size])}" for size in CALLERS]
    await close_engine(engine)
    await hand.close()
    return found


def _latency(waits: list[float]) -> str:
    return f"answer p50 {median(waits) * 1e3:.2f} ms, p99 {quantiles(waits, n=100)[98] * 1e3:.2f} ms"


async def compare_bulks(store: Store, rounds: int, scale: float) -> Table:
    """`submit_many` against hand-written SQL in transactions of 1000."""
    hand = await store.open_baseline("bulks/hand")
    engine = await new_engine(store.place("bulks/engine"))
    gc.collect()
    gc.freeze()
    heights = iter(range(1, 10**9))
    count = int(scale * 40_000)
    at_once = "hand-written SQL, 1000 at once, all or nothing"

    async def by_hand(_: int) -> Mapping[str, float]:
        return {BULK: await hand.run(ids(count), 1000), at_once: await hand.run_all_or_nothing(ids(count), 1000)}

    async def by_engine(_: int) -> Mapping[str, float]:
        found = {}
        for size in (1_000, 10_000):
            height, name = next(heights), f"submit_many of {size}"
            found[name], found[f"{name}, until in tables"] = await bulk(engine, count, size, height)
            await settle(engine, height)
        return found

    figures = await interleave((by_hand, by_engine), rounds)
    order = [BULK, at_once, *(name for name in figures if name not in (BULK, at_once))]
    found = table(
        store.named("engine-bulk"), f"Reserve and charge in bulk, {store.title}", "commands/s", figures, order, BULK
    )
    for size in (1_000, 10_000):
        found.goals.append(at_least(f"submit_many of {size}", figures[f"submit_many of {size}"], 100_000, "/s"))
    by_store = 1.8 if store.server is None else 1.5
    for baseline in (BULK, at_once):
        ratios = ratios_of(figures["submit_many of 1000"], figures[baseline])
        found.goals.append(at_least(f"submit_many of 1000 to {baseline}", ratios, by_store))
    found.notes.append("GOALS asks this ratio of the full lifecycle with matching, of which this is the money's part")
    await close_engine(engine)
    await hand.close()
    return found
