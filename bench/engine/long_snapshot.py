"""Speed beside somebody who holds a REPEATABLE READ snapshot all the time, so that no dead row may be cleaned away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg
from tests.postgres.server import ROLE

from bench.engine.contestant import bulk, ids, new_engine, settle
from bench.engine.opened import close_engine
from bench.measure import Table, at_least, interleave, ratios_of, table
from bench.stores import Store

OTHER = "held"
"""A database of its own: a snapshot stops the cleaning of a whole database, and must not slow the other contestants."""


async def compare_long_snapshot(store: Store, rounds: int, scale: float) -> Table:
    """Bulks of 1000 with and without a snapshot that is older than all of them; baseline-written SQL for comparison."""
    assert store.server is not None
    store.server.psql(f"CREATE DATABASE {OTHER}", database="postgres")
    store.server.psql(f"GRANT CREATE ON DATABASE {OTHER} TO {ROLE}", database=OTHER)
    engines = [await new_engine(store.place("held/without")), await new_engine(store.place("held/with", OTHER))]
    baselines = [await store.open_baseline("held/baseline"), await store.open_baseline("held/baseline-with", OTHER)]
    pairs, by_hand = int(scale * 20_000), int(scale * 1_000)
    names = ["without", "beside a held snapshot"]

    async def of_engine(number: int) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for which in (0, 1) if number % 2 else (1, 0):
            answered, projected = await bulk(engines[which], pairs, 1_000, number + 1)
            await settle(engines[which], number + 1)
            found |= {f"engine {names[which]}": answered, f"engine {names[which]}, until in tables": projected}
        return found

    async def of_hand(_: int) -> Mapping[str, float]:
        return {
            f"baseline-written SQL {name}": await baseline.run(ids(by_hand), 1000)
            for name, baseline in zip(names, baselines, strict=True)
        }

    async with open_long_snapshot(store.server.dsn(ROLE, OTHER)):
        figures = await interleave((of_engine, of_hand), rounds)
    for engine in engines:
        await close_engine(engine)
    for baseline in baselines:
        await baseline.close()
    whats = ("engine {}", "engine {}, until in tables", "baseline-written SQL {}")
    order = [what.format(name) for what in whats for name in names]
    title = f"Bulks of 1000 beside a held snapshot, {store.title}"
    found = table(store.named("engine-held"), title, "commands/s", figures, order, order[0])
    for what, without, beside in zip(("answered", "until in tables"), order[0:4:2], order[1:4:2], strict=True):
        found.goals.append(at_least(f"{what}, held to not held", ratios_of(figures[beside], figures[without]), 0.9))
    hand_ratios = ratios_of(figures[order[5]], figures[order[4]])
    by_round = ", ".join(f"{ratio:.2g}×" for ratio in hand_ratios)
    found.notes.append(f"baseline-written SQL, held to not held, round by round: {by_round}")
    found.notes.append(f"one snapshot over all rounds, {rounds * pairs} reservations made and charged beside it")
    return found


@asynccontextmanager
async def open_long_snapshot(dsn: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT count(*) FROM pg_class")
            yield
    finally:
        await connection.close()
