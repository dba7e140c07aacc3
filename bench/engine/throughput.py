"""Commands per second: single callers, bulks, our own pieces in a row, the journal alone, and SQL written by hand."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from statistics import median, quantiles

from bench.engine.contestant import DirectBatches, JournalAlone, bulk, call, close_engine, ids, new_engine, settle
from bench.measure import Table, at_least, interleave, ratios_of, table
from bench.stores import Store

ONE_BY_ONE = "hand-written SQL, a transaction a command"
BULK = "hand-written SQL, 1000 commands a transaction"
CALLERS = (1, 16, 64)


async def compare_callers(store: Store, rounds: int, scale: float) -> Table:
    """Closed loops of 1, 16 and 64 callers against direct batches of the same sizes and hand-written SQL."""
    hand = await store.open_baseline("callers/hand")
    engine = await new_engine(store.place("callers/engine"))
    bare = DirectBatches(store.place("callers/bare"), with_tables=False)
    full = DirectBatches(store.place("callers/full"), with_tables=True)
    await bare.open()
    await full.open()
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

    async def by_direct(_: int) -> Mapping[str, float]:
        found = {}
        for size in CALLERS:
            for name, direct in (("direct batches of", bare), ("direct batches and tables,", full)):
                height = next(heights)
                found[f"{name} {size}"] = await direct.run(counts[size], size, height)
                await direct.settle(height)
        return found

    async def by_engine(_: int) -> Mapping[str, float]:
        found = {}
        for size in CALLERS:
            height = next(heights)
            found[f"engine, {size} callers"], took = await call(engine, size, counts[size] // size, height)
            waits[size] += took
            await settle(engine, height)
        return found

    figures = await interleave((by_hand, by_direct, by_engine), rounds)
    order = [ONE_BY_ONE, BULK]
    for size in CALLERS:
        order += [f"direct batches of {size}", f"direct batches and tables, {size}", f"engine, {size} callers"]
    found = table(
        store.named("engine-callers"),
        f"Reserve and charge, one by one, {store.title}",
        "commands/s",
        figures,
        order,
        ONE_BY_ONE,
    )
    for size, limit in ((16, 0.85), (64, 0.7)):
        ratios = ratios_of(figures[f"engine, {size} callers"], figures[f"direct batches of {size}"])
        found.goals.append(at_least(f"{size} callers to direct batches", ratios, limit))
    found.notes += [f"{size} callers: {_latency(waits[size])}" for size in CALLERS]
    await close_engine(engine)
    await bare.close()
    await full.close()
    await hand.close()
    return found


def _latency(waits: list[float]) -> str:
    return f"answer p50 {median(waits) * 1e3:.2f} ms, p99 {quantiles(waits, n=100)[98] * 1e3:.2f} ms"


async def compare_bulks(store: Store, rounds: int, scale: float) -> Table:
    """`submit_many` and the journal alone against hand-written SQL in transactions of 1000."""
    hand = await store.open_baseline("bulks/hand")
    engine = await new_engine(store.place("bulks/engine"))
    journal = JournalAlone(store.place("bulks/journal"))
    await journal.open()
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

    async def by_journal(_: int) -> Mapping[str, float]:
        counts = {1: count // 80, 16: count // 8, 64: count // 4, 1_000: count}
        return {f"journal alone, batches of {size}": await journal.run(counts[size], size) for size in counts}

    figures = await interleave((by_hand, by_engine, by_journal), rounds)
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
    await journal.close()
    await hand.close()
    return found
